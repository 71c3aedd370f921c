"""Style of all figures: sizes, looks of the methods, labels, files."""

from __future__ import annotations

import io
import itertools
import json
import re
import textwrap
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import ROWS, Study
from vitinit.analysis.plotting import fonts
from vitinit.analysis.series import Line
from vitinit.analysis.text import capitalised, one_line
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers.errors import os_errors

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTH = 5.5
"""Inches: the text of a paper of one column. No text is smaller than 7 pt, at this width or a larger one."""
ACROSS = 3
"""At most this many panels beside one another."""
LETTER, LINE, BELOW_AXES = 0.06, 0.15, 0.36
"""Inches: most letters in 8 pt, a line of a legend, and what an axis needs for its numbers and its name."""
CHARACTERS = 95
"""In a line of a figure's title."""
CHARACTERS_OF_CAPTION = 112
CAPTION_LINE = 0.12
"""Inches of a line of a caption."""
FAINT = "#444444"
"""Colour of captions."""
LETTERS = 75
"""Number of letters of panel titles in a line of `WIDTH`."""

BAND = "mean over seeds, band ± standard deviation of seeds"

COLOURS = ("#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#0072B2", "#E69F00", "#000000")
"""Okabe and Ito's palette, told apart with every common colour blindness; the last is that of rows without a method."""
SHADES = (("black", 0.0), ("black", 0.4), ("white", 0.35))
"""Shades for more methods than there are colours: the share of another colour mixed in."""
MARKERS = ("^", "D", "v", "p", "s", "P", "X", "<")
PLACEBO_MARKER = "x"
OWN = 68
"""Pairs of colour and marker besides those that are fixed."""
BASES = ("kaiming_uniform", "trunc_normal")
BASE_GREY = "#777777"
DASHES = ("-", "--", "-.", ":")
"""Dash patterns of bases: these two, then others."""
MOST_MARKERS = 8
"""On a line of many epochs."""
MARKED_WHOLE = 5
"""A line through so many points or fewer has a marker at each, so that none seems to be measured more seldom."""
FEW = 10
"""A line through so many points or fewer shows where they are."""


@dataclass(frozen=True)
class LineStyle:
    """Look of a row in every figure: colour and marker of its method, dash and fill of its base."""

    color: str
    linestyle: str = DASHES[0]
    marker: str = ""
    filled: bool = True
    place: int = 0
    """Lines of other places have their markers at other epochs, so that they are seen where lines coincide."""

    @property
    def line(self) -> dict[str, Any]:
        """For lines."""
        return {"color": self.color, "linestyle": self.linestyle}

    @property
    def point(self) -> dict[str, Any]:
        """For markers."""
        face = self.color if self.filled else "white"
        return {"color": self.color, "marker": self.marker, "markerfacecolor": face, "markersize": 4.5}


def looks(study: Study) -> dict[str, LineStyle]:
    """By row label, in the order of the tables.

    A method with the same parameters has one colour and marker, over all bases and in every study: those of the papers'
    rows are fixed, those of others follow from its name and parameters. A placebo has the colour of its method and a
    marker of its own. Rows without a method are black.
    """
    specs = {outcome.row: outcome.spec for outcome in reversed(study.outcomes)}
    labels = [label for label in dict.fromkeys([*ROWS, *study.order, *study.rows]) if label in specs]
    bases = list(dict.fromkeys([*BASES, *(specs[row].base.name for row in labels)]))
    fixed = ((i, specs[row].method) for i, row in enumerate(ROWS[2:]) if row in specs)
    places = {_identity(method): i for i, method in fixed if method}
    found: dict[str, LineStyle] = {}

    def place_of(initializer: str) -> int:
        if initializer not in places:
            first = int(sha256(initializer.encode()).hexdigest()[:8], 16)
            tried = (len(ROWS[2:]) + (first + step) % OWN for step in range(OWN))
            places[initializer] = next((place for place in tried if place not in places.values()), first)
        return places[initializer]

    for row in labels:
        spec = specs[row]
        color, marker = COLOURS[-1], "o"
        if spec.method:
            of = spec.method.params.get("of")
            color, marker = _of_method(place_of(json.dumps(of, sort_keys=True) if of else _identity(spec.method)))
            marker = PLACEBO_MARKER if of else marker
        base = bases.index(spec.base.name)
        tried = [LineStyle(color, dash, marker, base == 0) for dash in (*DASHES[base:], *DASHES[:base])]
        first = place_of(_identity(spec.base))  # where all dashes are taken
        others = (LineStyle(_of_method(first + step)[0], DASHES[0], "*", base == 0) for step in range(OWN))
        taken = {replace(look, place=0) for look in found.values()}
        look = next((look for look in (*tried, *others) if look not in taken), tried[0])
        found[row] = replace(look, place=len(found))
    return {row: found[row] for row in study.rows}


def _identity(method: InitializerSpec) -> str:
    return json.dumps({"name": method.name, **method.params}, sort_keys=True)


def _of_method(place: int) -> tuple[str, str]:
    """Colour and marker; the first 72 differ."""
    from matplotlib.colors import to_hex, to_rgb

    *colours, _ = COLOURS
    color, (other, share) = colours[place % len(colours)], SHADES[place // len(colours) % len(SHADES)]
    red, green, blue = ((1 - share) * a + share * b for a, b in zip(to_rgb(color), to_rgb(other), strict=True))
    return to_hex((red, green, blue)), MARKERS[place % len(MARKERS)]


def set_defaults() -> None:
    """Matplotlib's settings for all figures."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams.update(
        {
            "pdf.fonttype": 42,  # TrueType in PDF: text stays text
            "font.size": 8,
            "axes.titlesize": 8,
            "axes.labelsize": 8,
            "figure.titlesize": 8,
            "legend.fontsize": 8,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "axes.linewidth": 0.6,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "lines.linewidth": 1.4,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "grid.alpha": 0.3,
            "grid.linewidth": 0.6,
            "figure.max_open_warning": 0,  # one drawing may be a figure per row; all are closed once they are saved
        }
    )


def panels(
    count: int, height: float, title: str, caption: str = "", across: int | None = None, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of `height` inches, its caption at the foot; `shared` as in `plt.subplots`."""
    import matplotlib.pyplot as plt

    across = min(across or (2 if count == 4 else ACROSS), count)
    down = -(-count // across)
    caption = wrap_caption(caption)
    high = height * down + 0.5 + 0.13 * title.count("\n") + CAPTION_LINE * len(caption.splitlines())
    figure, grid = plt.subplots(down, across, figsize=(WIDTH, high), squeeze=False, layout="constrained", **shared)
    figure.suptitle(title)
    if caption:
        write_caption(figure, caption)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def label_axes(grid: list[Axes], x: str, y: str) -> None:
    """Names of the axes of panels: x below each of them, y left of all."""
    for axes in grid:
        axes.set_xlabel(textwrap.fill(x, _letters(axes)))
        axes.tick_params(labelbottom=True)
        spec = axes.get_subplotspec()
        if spec is None or spec.is_first_col():
            axes.set_ylabel(y)


def panel_title(axes: Axes, text: str) -> None:
    """In as many lines as the panel's width needs."""
    # with a place of its own, matplotlib need not look for one that is above all ticks, each time that it draws
    axes.set_title(textwrap.fill(text, _letters(axes)), y=1.0)


def _letters(axes: Axes) -> int:
    """Return the number of letters that fit in one line over or under a panel."""
    spec = axes.get_subplotspec()
    return LETTERS // (spec.get_gridspec().ncols if spec else 1)


def line_with_band(axes: Axes, numbers: Line, look: LineStyle, stagger: bool = False) -> Line2D:
    """A mean and its band over x, with markers if the look has some or points are few; returns what a legend shows.

    Args:
        axes: Where to draw.
        numbers: The standard deviation of one seed is NaN, which draws no band.
        look: How.
        stagger: Markers of many points at some of them only, at others for each look.
    """
    count = len(numbers.x)
    step = max(-(-count // MOST_MARKERS), 2) if stagger and count > MARKED_WHOLE else 1
    point = look.point if look.marker or count > FEW else {**look.point, "marker": "o"}
    every = (look.place % step, step)
    (line,) = axes.plot(numbers.x, numbers.mean, markevery=every, **{**look.line, **point, "markersize": 3.5})
    axes.fill_between(numbers.x, *numbers.band, color=look.color, alpha=0.15, linewidth=0)
    return line


def legend(figure: Figure, study: Study, handles: dict[str, Line2D]) -> None:
    """Below all panels, rows in their order, then what tells bases apart; `handles` by row label."""
    rows = [row for row in study.rows if row in handles]
    bases = base_handles(study, rows)
    labels = [*map(safe, rows), *(f"base {safe(name)}" for name in bases)]
    legend_below(figure, [*(handles[row] for row in rows), *bases.values()], labels)


def base_handles(study: Study, rows: Iterable[str]) -> dict[str, Line2D]:
    """Return legend entries of bases by name, with dash and fill; none where all methods stand on one base."""
    from matplotlib.lines import Line2D

    known, found = looks(study), dict[str, Line2D]()
    specs = {row: study.examples[row, None] for row in rows}
    for row, spec in specs.items():
        look = replace(known[row], color=BASE_GREY, marker="o")
        found.setdefault(spec.base.name.replace("_", " "), Line2D([], [], **{**look.line, **look.point}))
    several = len({spec.base.name for spec in specs.values() if spec.method}) > 1
    return found if several else {}


def legend_below(figure: Figure, handles: list[Line2D], labels: list[str], length: float = 2.6) -> None:
    """A legend below all panels, lines of so many font sizes: as many columns as there is room for.

    The caption stands between panels and legend.
    """
    columns, caption = _columns(labels, WIDTH, length), figure.get_supxlabel()
    figure.set_figheight(figure.get_figheight() + LINE * (-(-len(labels) // columns) - 1))
    shown = figure.legend(
        handles, labels, loc="outside lower center", title=caption or None, title_fontsize=7, **_legend(columns, length)
    )
    shown.get_title().set_color(FAINT)
    if caption:
        figure.supxlabel("")


def legend_of_panel(axes: Axes, handles: list[Line2D], labels: list[str], title: str | None = None) -> None:
    """A legend below one panel: as many columns as there is room for."""
    from matplotlib.transforms import ScaledTranslation

    figure = axes.get_figure(root=True)
    assert figure
    columns = _columns(labels, WIDTH * axes.get_position().width, 2.6)
    axes.legend(
        handles,
        labels,
        title=title,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + ScaledTranslation(0, -BELOW_AXES, figure.dpi_scale_trans),
        **_legend(columns, 2.6),
    )
    figure.set_layout_engine("constrained", w_pad=0.12)  # such legends leave too little room for the name of the y-axis


def _columns(labels: list[str], width: float, length: float) -> int:
    one = (length + 1.6) * 8 / 72 + LETTER * max(map(len, labels), default=0)
    columns = max(1, min(len(labels), int(width / one)))
    return -(-len(labels) // -(-len(labels) // columns)) if labels else 1


def _legend(columns: int, length: float) -> dict[str, Any]:
    return {"ncols": columns, "frameon": False, "handlelength": length, "columnspacing": 1.2, "handletextpad": 0.4}


def wrap_caption(text: str, width: float = WIDTH) -> str:
    """Break each line of a caption where a figure of `width` inches ends."""
    return "\n".join(textwrap.fill(line, int(CHARACTERS_OF_CAPTION * width / WIDTH)) for line in text.splitlines())


def write_caption(figure: Figure, text: str, **place: Any) -> None:
    """Write a wrapped caption at the foot of a figure; `place` as in `Figure.supxlabel`, where there is no layout."""
    figure.supxlabel(text, fontsize=7, color=FAINT, x=0.01, ha="left", linespacing=1.2, **place)


def caption_of(figure: Figure) -> str:
    """Return the caption at the foot of a figure, or above its legend."""
    return figure.get_supxlabel() or "".join(each.get_title().get_text() for each in figure.legends)


def counted(what: str, count: int) -> list[str]:
    """`layer 1`, `2`, `3` ... for a legend."""
    return [f"{what} 1", *map(str, range(2, count + 1))]


def safe(label: str) -> str:
    """A label that matplotlib does not take for mathematics, with `?` for what no font that is in use has."""
    known = fonts.glyphs()
    return "".join(char if ord(char) in known else "?" for char in one_line(label, 60)).replace("$", r"\$")


def score_name(runs: pd.DataFrame) -> str:
    """Return the name of `score` of these runs: of test images, of validation images, or of either."""
    return f"{split(runs)} {' or '.join(sorted(set(runs['metric']), reverse=True))}".lstrip()


def split(runs: pd.DataFrame) -> str:
    """`test`, `validation`, or nothing where these runs have both."""
    names, splits = {"test": "test", "val": "validation"}, set(runs["split"])
    return names[splits.pop()] if len(splits) == 1 else ""


def title_of_scores(study: Study) -> str:
    """Return the title of a figure of them."""
    known = {"top-1": "Accuracy", "top-1 or mean IoU": "Accuracy or mean IoU"}
    return known.get(study.measured, capitalised(study.measured))


def file_part(labels: Iterable[str]) -> str:
    """Labels as a part of a file's name; one of more than 80 letters ends in a digest of the whole."""
    parts = [re.sub(r"[^\w.-]+", "_", label).strip("_") for label in labels]
    return "-".join(
        part if len(part) <= 80 else f"{part[:71]}-{sha256(part.encode()).hexdigest()[:8]}" for part in parts
    )


def not_in(taken: Container[str], name: str) -> str:
    """A name that no other file has: labels may differ in nothing but what a name cannot hold."""
    others = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], others) if each not in taken)


def span(values: Iterable[int]) -> str:
    """`3`, or `3 to 5`."""
    known = set(values)
    return " to ".join(map(str, sorted({min(known), max(known)})))


def lay_out(figure: Figure) -> None:
    """Place what is in a figure, once: otherwise every file that it is written to begins with drawing it unseen."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)


def save(figure: Figure, path: Path) -> None:
    """Write `<path>.pdf` and `<path>.png`, without dates: the same records give the same bytes.

    Raises:
        VitinitError: a file cannot be written.
    """
    lay_out(figure)
    with os_errors(f"cannot write {path}"):
        figure.savefig(f"{path}.pdf", metadata={"CreationDate": None}, dpi=400)
        figure.savefig(f"{path}.png", dpi=200, metadata={"Software": None})


def to_svg(figure: Figure) -> str:
    """The figure as SVG with its text as text. The same records give the same bytes."""
    import matplotlib as mpl

    buffer = io.StringIO()
    lay_out(figure)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vitinit"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    return buffer.getvalue()
