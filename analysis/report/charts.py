"""Line charts of the page: a picture that stands still, and the numbers from which Bokeh draws one that answers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import COLOURS, DASHES, looks
from vitinit.analysis.series import Chart, Line, Panel, Scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDE, HIGH = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 14, 12, 62
"""Margins of a panel's picture around its axes, in units of its own."""
ROOM = 0.05
"""Share of an axis left free before its first number and behind its last."""
DASHED: dict[str, list[float]] = {"-": [], "--": [6, 4], "-.": [6, 3, 1, 3], ":": [1.5, 3]}
MORE_DASHES: list[list[float]] = [[12, 3], [2, 2], [12, 3, 3, 3], [6, 3, 1, 3, 1, 3], [1.5, 6], [12, 3, 1, 3, 1, 3]]
RAMP = {"light": (0.0, 0.85), "dark": (0.35, 1.0)}
"""Ends of viridis for lines that have an order, such that the first and the last are seen on the ground."""

LIGHT = 0.45
"""Least lightness of a line on a dark ground, from 0 to 1."""


@dataclass(frozen=True)
class Stroke:
    """Stroke of all lines of one name."""

    name: str
    light: str
    dark: str
    dash: list[float]
    heavy: bool = False

    @property
    def colour(self) -> str:
        """In CSS: one on a light ground, another in the dark."""
        return f"light-dark({self.light},{self.dark})"


@dataclass(frozen=True)
class Legend:
    """Legend of lines, or panels, that a reader can hide."""

    of: str
    """Noun for one of them."""
    strokes: list[Stroke]

    def short(self, stroke: Stroke) -> str:
        """A name without what all of them begin with."""
        return stroke.name.removeprefix(f"{self.of} ")


@dataclass(frozen=True)
class Plot:
    """A chart as the page shows it."""

    chart: Chart
    legends: list[Legend]
    """One a kind of line."""
    rows: list[str]
    """The rows that panels are of, where each is of one."""
    pictures: list[str]
    """SVG, a panel each."""
    data: str
    """The same numbers as JSON."""

    @property
    def strokes(self) -> list[Stroke]:
        """All, in the order of the numbers that pictures and data call them by."""
        return [stroke for legend in self.legends for stroke in legend.strokes]


@dataclass(frozen=True)
class Axis:
    """The range of an axis, and what is written along it."""

    low: float
    high: float
    ticks: list[float]
    labels: list[str]
    log: bool = False

    def share(self, values: NDArray[Any] | float) -> NDArray[Any]:
        """Places from 0 to 1."""
        import numpy as np

        low, high, x = (np.log(each) if self.log else each for each in (self.low, self.high, np.asarray(values, float)))
        return np.asarray((x - low) / (high - low))


def plot(chart: Chart, study: Study) -> Plot:
    """A chart of a study."""
    legends = []
    for each in dict.fromkeys(panel.scale.each for panel in chart.panels):
        names = dict.fromkeys(name for panel in chart.panels if panel.scale.each == each for name in panel.lines)
        legends.append(Legend(each, _strokes(each, list(names), study)))
    strokes = [(legend.of, stroke) for legend in legends for stroke in legend.strokes]
    place = {(each, stroke.name): index for index, (each, stroke) in enumerate(strokes)}
    heights = {scale: _y_axis(scale, chart) for scale in dict.fromkeys(panel.scale for panel in chart.panels)}
    pictures, panels = [], []
    for panel in chart.panels:
        x = _x_axis(panel)
        numbers = {place[panel.scale.each, name]: line for name, line in panel.lines.items()}
        pictures.append(_picture(panel, x, heights[panel.scale], numbers, [stroke for _, stroke in strokes]))
        panels.append(
            {
                "title": panel.title,
                "row": panel.row,
                "reference": panel.reference,
                "scale": list(heights).index(panel.scale),
                "axis": vars(x),
                "lines": [_numbers(index, line) for index, line in numbers.items()],
            }
        )
    scales = [{"x": scale.x, "y": scale.y, "each": scale.each, "axis": vars(y)} for scale, y in heights.items()]
    rows = dict.fromkeys(panel.row for panel in chart.panels if panel.row is not None)
    named = [[stroke.name, stroke.dash, stroke.heavy] for _, stroke in strokes]
    data = {"strokes": named, "scales": scales, "panels": panels}
    # nothing in a script may look like the end of it
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Plot(chart, legends, list(rows) if len(rows) > 1 else [], pictures, text)


def _strokes(each: str, names: list[str], study: Study) -> list[Stroke]:
    if each == "row":
        strokes = _of_rows(study)
        return [strokes[name] for name in names]
    if each == "head":
        black = COLOURS[-1]
        colours = [colour for colour in COLOURS if colour != black]
        return [
            Stroke(name, black, _on_dark(black), [], heavy=True)
            if name == "mean"
            else Stroke(
                name,
                colours[i % len(colours)],
                _on_dark(colours[i % len(colours)]),
                DASHED[DASHES[i // len(colours) % len(DASHES)]],
            )
            for i, name in enumerate(names)
        ]
    import matplotlib as mpl
    import numpy as np

    ramps = {
        ground: [mpl.colors.to_hex(colour) for colour in mpl.colormaps["viridis"](np.linspace(*ends, len(names)))]
        for ground, ends in RAMP.items()
    }
    return [
        Stroke(name, light, dark, []) for name, light, dark in zip(names, ramps["light"], ramps["dark"], strict=True)
    ]


def _of_rows(study: Study) -> dict[str, Stroke]:
    """In the colours of the figures; rows that these tell apart by marker alone have a dash of their own here."""
    found: dict[str, Stroke] = {}
    for row, look in looks(study).items():
        taken = [stroke.dash for stroke in found.values() if stroke.light == look.color]
        free = [dash for dash in (DASHED[look.linestyle], *DASHED.values(), *MORE_DASHES) if dash not in taken]
        found[row] = Stroke(row, look.color, _on_dark(look.color), [*free, DASHED[look.linestyle]][0])
    return found


def _on_dark(colour: str) -> str:
    """A colour that is seen on a dark ground: black becomes white, and what is dark lighter."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    share = max(0.0, (LIGHT - light) / (1 - light))
    if colour == "#000000":
        share = 1.0
    return "#" + "".join(f"{round(255 * (each + share * (1 - each))):02x}" for each in (red, green, blue))


def _x_axis(panel: Panel) -> Axis:
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    places = np.unique(np.concatenate([line.x for line in panel.lines.values()]).astype(float))
    first, last = float(places[0]), float(places[-1])
    if panel.scale.log_x and first > 0:
        room = (last / first) ** ROOM if last > first else 2.0
        return Axis(first / room, last * room, places.tolist(), list(map(_written, places)), log=True)
    room = ROOM * ((last - first) or 1.0)
    whole = bool((places == places.round()).all())
    return _axis(first - room, last + room, MaxNLocator(5, integer=whole).tick_values(first, last))


def _y_axis(scale: Scale, chart: Chart) -> Axis:
    """For all panels with this scale, which can so be compared."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    panels = [panel for panel in chart.panels if panel.scale == scale]
    lines = [line for panel in panels for line in panel.lines.values()]
    ends = [np.array([panel.reference for panel in panels if panel.reference is not None], float)]
    for line in lines:
        ends += [line.mean, *line.band]
    values = np.concatenate(ends)
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    room = ROOM * ((high - low) or 1.0)
    return _axis(low - room, high + room, MaxNLocator(4).tick_values(low, high))


def _axis(low: float, high: float, found: Iterable[float]) -> Axis:
    ticks = [round(float(tick), 10) for tick in found if low <= tick <= high]
    return Axis(low, high, ticks, list(map(_written, ticks)))


def _picture(panel: Panel, x: Axis, y: Axis, lines: dict[int, Line], strokes: list[Stroke]) -> str:
    """A panel as SVG; colours are variables of the page, which has a light and a dark one of each."""
    import numpy as np

    def across(values: NDArray[Any] | float) -> NDArray[Any]:
        return LEFT + (WIDE - LEFT - RIGHT) * x.share(values)

    def down(values: NDArray[Any] | float) -> NDArray[Any]:
        return TOP + (HIGH - TOP - BOTTOM) * (1 - y.share(values))

    def points(xs: NDArray[Any], ys: NDArray[Any]) -> str:
        return " ".join(f"{a:.0f},{b:.0f}" for a, b in zip(xs, ys, strict=True))

    right, bottom = WIDE - RIGHT, HIGH - BOTTOM
    parts = [f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(panel.title)}">', '<g class="grid">']
    parts += [f'<path d="M{LEFT} {down(tick):.0f}H{right}"/>' for tick in y.ticks]
    parts += [f'<path d="M{across(tick):.0f} {TOP}V{bottom}"/>' for tick in x.ticks]
    parts.append("</g>")
    for tick, label in zip(y.ticks, y.labels, strict=True):
        parts.append(f'<text class="y" x="{LEFT - 10}" y="{down(tick) + 8:.0f}">{label}</text>')
    for tick, label in zip(x.ticks, x.labels, strict=True):
        parts.append(f'<text x="{across(tick):.0f}" y="{bottom + 26}">{label}</text>')
    parts.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{HIGH - 8}">{escape(panel.scale.x)}</text>')
    middle = (TOP + bottom) / 2
    parts.append(f'<text transform="translate(20 {middle:.0f}) rotate(-90)">{escape(panel.scale.y)}</text>')
    if panel.reference is not None:
        parts.append(f'<path class="reference" d="M{LEFT} {down(panel.reference):.0f}H{right}"/>')
    for index, line in lines.items():
        finite = np.isfinite(line.mean)
        places, heights = across(line.x[finite]), down(line.mean[finite])
        known = np.isfinite(line.mean) & np.isfinite(line.std)
        if known.sum() > 1:
            low, high = (down(end[known]) for end in line.band)
            its = across(line.x[known])
            band = f"{points(its, high)} {points(its[::-1], low[::-1])}"
            parts.append(f'<polygon fill="var(--c{index})" points="{band}"/>')
        stroke = strokes[index]
        dash = f' stroke-dasharray="{" ".join(f"{2 * length:g}" for length in stroke.dash)}"' if stroke.dash else ""
        heavy = ' class="heavy"' if stroke.heavy else ""
        parts.append(f'<polyline{heavy} stroke="var(--c{index})"{dash} points="{points(places, heights)}"/>')
        if len(places) == 1:
            parts.append(f'<circle fill="var(--c{index})" cx="{places[0]:.0f}" cy="{heights[0]:.0f}" r="6"/>')
    return "".join([*parts, "</svg>"])


def _numbers(index: int, line: Line) -> list[Any]:
    """Stroke, x, mean, spread (None for one seed) and n, one number where all are the same."""
    n = [int(each) for each in line.n]
    return [index, _whole(line.x.tolist()), _short(line.mean), _short(line.std), n[0] if len(set(n)) == 1 else n]


def _short(values: Sequence[float] | NDArray[Any]) -> list[float | int | None]:
    """Five digits, which is one more than the page shows."""
    return _whole([float(f"{value:.5g}") if math.isfinite(value) else None for value in values])


def _whole(values: Sequence[float | None]) -> list[float | int | None]:
    """As short as they can be written."""
    return [int(value) if value is not None and value == int(value) else value for value in values]


def _written(place: float) -> str:
    """Along an axis: whole numbers with all of their digits."""
    return f"{place:,.0f}" if place == round(place) else f"{place:,g}"
