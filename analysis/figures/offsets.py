"""First-layer attention at initialisation by offset of the key from the query, from records alone."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import CAPTION_LINE, LETTER, WIDTH, safe, wrap_caption, write_caption
from vitinit.analysis.text import count
from vitinit.benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    from vitinit.analysis.stats import Floats

APART = 1.16
"""From the middle of a map to that of the next one, in their sides."""
LARGEST, ROOMY = 0.75, 0.4
"""Inches: a map, and the least beside which all of its numbers are."""
TOP, BOTTOM, RIGHT = 0.52, 0.3, 0.75
"""Inches: for the title and the heads, the numbers, the scale."""
GUIDE = "offset of the key from the query: columns across, rows down; square: the query"
NAME = 28
"""Characters in a line of a row's name."""


@FIGURES.add(
    "attention_offsets",
    "no record holds attention by offset",
    caption="A head with a bright spot starts by looking at one place near the query, one with an even map everywhere.",
    place=6,
)
def offsets(study: Study) -> dict[str, Figure]:
    """First-layer attention at initialisation by offset: a line of maps a row label, a map a head; None without maps.

    The first dataset with maps, and of each row its first seed there. One logarithmic scale for all maps: uniform
    attention and a sharp impulse differ by two orders of magnitude.
    """
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.colors import LogNorm

    records = _first_maps(study)
    if not records:
        return {}
    maps = {row: [np.array(head) for head in record.init.offset_maps or []] for row, record in records.items()}
    values = np.concatenate([head.ravel() for heads in maps.values() for head in heads])
    high = max(float(values.max()), 1e-6)
    # Three decades at most, so that one vanishing entry does not flatten the rest.
    norm = LogNorm(max(float(values.min()) * 0.999, high * 1e-3), high)
    # one pair of axes for all maps, each in a square of side 1: axes of their own would take most of the time
    names = [textwrap.fill(safe(row), NAME) for row in maps]
    left = LETTER * max(len(line) for name in names for line in name.split("\n")) + 0.3
    widest = max(map(len, maps.values()))
    across, down = APART * (widest - 1) + 1, APART * (len(maps) - 1) + 1
    side = min(LARGEST, (WIDTH - left - RIGHT) / across)
    left = max(left, (WIDTH - RIGHT - side * across + left) / 2)
    roomy = side >= ROOMY
    first = next(iter(records.values()))
    seeds = " or ".join(map(str, sorted({record.spec.seed for record in records.values()})))
    caption = wrap_caption(
        f"{'' if roomy else 'columns: heads; '}{GUIDE}\n"
        f"{safe(study.column[first.run_id])}, seed {seeds}, mean over {count(first.init.images, 'image')}"
    )
    bottom = BOTTOM + CAPTION_LINE * len(caption.splitlines())
    height = TOP + side * down + bottom
    figure = plt.figure(figsize=(WIDTH, height))

    def axes_at(x: float, y: float, wide: float, high: float) -> Axes:
        return figure.add_axes((x / WIDTH, y / height, wide / WIDTH, high / height))

    axes = axes_at(left, bottom, side * across, side * down)
    x_ticks: dict[float, str] = {}
    y_ticks: dict[float, str] = {}
    for line, heads in enumerate(maps.values()):
        for head, each in enumerate(heads):
            _draw(axes, each, APART * head, APART * line, norm)
            lowest = not any(head < len(other) for other in list(maps.values())[line + 1 :])
            x_ticks |= _numbers(len(each), APART * head, roomy) if lowest else {}
        y_ticks |= _numbers(len(heads[0]), APART * line, roomy)
        axes.text(-0.5 - 0.3 / side, APART * line, names[line], ha="right", va="center")
    for head in range(widest):
        axes.text(APART * head, -0.55, f"{'head ' * roomy}{head + 1}", ha="center", va="bottom", fontsize=7)
    axes.set_xlim(-0.5, across - 0.5)
    axes.set_ylim(down - 0.5, -0.5)
    axes.set_xticks(list(x_ticks), list(x_ticks.values()))
    axes.set_yticks(list(y_ticks), list(y_ticks.values()))
    axes.tick_params(labelsize=7, length=2)
    axes.spines[:].set_visible(False)
    write_caption(figure, caption, y=0.04 / height, va="bottom")
    figure.suptitle("First-layer attention at initialisation", y=1 - 0.06 / height)
    tall = min(2.0, side * down)
    bar = axes_at(left + side * across + 0.12, bottom + (side * down - tall) / 2, 0.1, tall)
    figure.colorbar(axes.get_images()[0], cax=bar, label="attention (log scale)")
    return {"attention_offsets": figure}


def _draw(axes: Axes, values: Floats, x: float, y: float, norm: Normalize) -> None:
    """One map around a place, with its middle in a square."""
    import numpy as np
    from matplotlib.patches import Rectangle

    axes.imshow(
        np.clip(values, norm.vmin, None), norm=norm, cmap="viridis", extent=(x - 0.5, x + 0.5, y + 0.5, y - 0.5)
    )
    side = 1 / len(values)
    for width, color in ((2.0, "black"), (1.0, "white")):  # seen on every colour of the map
        corner = (x - side / 2, y - side / 2)
        axes.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=color, linewidth=width))


def _numbers(side: int, middle: float, roomy: bool) -> dict[float, str]:
    """Return the positions of the first, middle and last offset of a map; where there is no room, of the middle."""
    r = side // 2
    return {middle + each / side: f"{each}".replace("-", "−") for each in (sorted({-r, 0, r}) if roomy else [0])}


def _first_maps(study: Study) -> dict[str, RunRecord]:
    """By row, in the order of the table: the first seed's record with maps, on the first dataset that has any."""
    with_maps = [r for r in study.contents.done.values() if r.init.offset_maps]
    for column in study.columns:
        here = [record for record in with_maps if study.column[record.run_id] == column]
        if here:
            here.sort(key=lambda record: record.spec.seed)
            return {row: next(r for r in here if r.row == row) for row in study.rows if any(r.row == row for r in here)}
    return {}
