"""Heat maps of linear CKA between layers, epochs or initialisations, of runs with `--keep-maps`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from vitinit.analysis.curves.cka import cka
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.kept import NONE, Kept, kept, kept_at_one_seed
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import CAPTION_LINE, WIDTH, file_part, not_in, safe, wrap_caption, write_caption
from vitinit.analysis.text import one_line
from vitinit.analysis.unread import marked, said, with_mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

    from vitinit.analysis.curves.cka import Floats

T = TypeVar("T")
ACROSS = 4
"""Upper limit of maps in one row."""
LARGEST, WRITTEN, NAMED = 1.4, 0.25, 0.115
"""Inches: largest side of a map, smallest cell with its value written in it, smallest cell with a name beside it."""
LONGEST, CHARACTER = 24, 0.062
"""Longest name, in characters, and width of a character, in inches."""
RIGHT, TOP, GAP, TITLE = 0.75, 0.3, 0.12, 0.24
"""Inches: colour bar, title of the figure, gap between maps, and title of a row of maps."""
MOST_LABELS = 6
"""Upper limit of layers or epochs that are all numbered."""


@dataclass(frozen=True)
class Map:
    """Matrix of CKA between representations, numbered from the bottom or named from the top."""

    title: str
    values: Floats
    labels: list[str]
    axis: str
    """Name of the numbered axis; empty for names."""


@CURVES.add(
    "cka_layers",
    NONE,
    caption="Bright blocks are layers that represent the images alike.",
    place=9,
)
def layers(study: Study) -> dict[str, Figure]:
    """Return CKA between the layers of a run, before and after training: a figure per dataset, two maps per row."""
    figures = {}
    for column, runs in kept(study).items():
        lines = []
        for some in _wrap(list(runs.items())):
            for place, when in ((0, "before"), (-1, "after")):
                lines.append([_between_layers(with_mark(row, run.record), run, place, when) for row, run in some])
        figures[f"cka_layers-{file_part([column])}"] = _draw(lines, "Between layers", column, runs)
    return figures


@CURVES.add(
    "cka_epochs",
    "no run with attention maps of three epochs (--keep-maps --maps-at EPOCH)",
    caption="A dark first line is a layer that training has changed, a bright field are epochs in which it rests.",
    place=10,
)
def epochs(study: Study) -> dict[str, Figure]:
    """Return CKA between epochs of a run, by layer: a figure per row and dataset with maps of three epochs or more."""
    figures: dict[str, Figure] = {}
    for column, runs in kept(study).items():
        for row, run in runs.items():
            grams_LEBnn = run.maps.grams_ELBnn.swapaxes(0, 1)
            if len(run.maps.epochs) > 2:
                maps = [
                    Map(f"layer {layer}", cka(grams_EBnn, grams_EBnn), _numbers(run.maps.epochs), "epoch")
                    for layer, grams_EBnn in enumerate(grams_LEBnn, 1)
                ]
                name = not_in(figures, f"cka_epochs-{file_part([column, row])}")
                title = f"{safe(row)}{marked([run.record])}: between epochs"
                figures[name] = _draw(_wrap(maps), title, column, {row: run})
    return figures


@CURVES.add(
    "cka_initializers",
    "no two rows with attention maps at one seed (--keep-maps)",
    caption="Bright fields are initialisations that end alike, dark ones differ after training too.",
    place=11,
)
def initializers(study: Study) -> dict[str, Figure]:
    """Return CKA between rows after training, all at one seed: a figure per dataset, a map per layer."""
    import numpy as np

    figures = {}
    for column, runs in kept_at_one_seed(study).items():
        if len(runs) > 1:
            maps = []
            names = [safe(one_line(row, LONGEST)) + marked([run.record]) for row, run in runs.items()]
            for layer in range(min(run.maps.grams_ELBnn.shape[1] for run in runs.values())):
                grams_RBnn = np.stack([run.maps.grams_ELBnn[-1, layer] for run in runs.values()])
                maps.append(Map(f"layer {layer + 1}", cka(grams_RBnn, grams_RBnn), names, ""))
            title = "Between initialisations, after training"
            across = int((WIDTH - _margin(maps[0]) - RIGHT) / (NAMED * len(runs) + GAP))
            lines = _wrap(maps, max(1, min(ACROSS, across)))
            figures[f"cka_initializers-{file_part([column])}"] = _draw(lines, title, column, runs)
    return figures


def _between_layers(row: str, run: Kept, place: int, when: str) -> Map:
    grams_LBnn = run.maps.grams_ELBnn[place]
    title = textwrap.fill(safe(row), 18) if when == "before" else ""
    return Map(title, cka(grams_LBnn, grams_LBnn), _numbers(range(1, len(grams_LBnn) + 1)), f"layer, {when}")


def _numbers(numbers: Iterable[int]) -> list[str]:
    """Return labels of numbers, with all but every k-th empty if there are more than `MOST_LABELS`."""
    known = list(numbers)
    step = -(-len(known) // MOST_LABELS)
    return ["" if place % step else str(number) for place, number in enumerate(known)]


def _margin(shown: Map) -> float:
    """Return the margin left of a map and below it, in inches."""
    return 0.55 if shown.axis else 0.15 + CHARACTER * max(map(len, shown.labels))


def _wrap(items: list[T], most: int = ACROSS) -> list[list[T]]:
    """Split items into rows of nearly equal length, at most `most` each."""
    lines = -(-len(items) // most)
    across = -(-len(items) // lines)
    return [items[first : first + across] for first in range(0, len(items), across)]


def _draw(lines: list[list[Map]], title: str, column: str, runs: dict[str, Kept]) -> Figure:
    """Draw rows of maps on one colour scale, from the tenth below all values to 1, with a caption."""
    import matplotlib.pyplot as plt

    darkest = math.floor(10 * min(float(each.values.min()) for maps in lines for each in maps)) / 10
    across, named = max(map(len, lines)), not lines[0][0].axis
    margin, least = _margin(lines[0][0]), NAMED * len(lines[0][0].labels)
    size = min(max(LARGEST, least if named else 0), (WIDTH - margin - RIGHT) / across - GAP)
    left = margin + (WIDTH - margin - RIGHT - across * (size + GAP)) / 2
    unread = said(run.record for run in runs.values())
    seeds = " or ".join(map(str, sorted({run.record.spec.seed for run in runs.values()})))
    caption = wrap_caption(f"{safe(column)}, seed {seeds}\n{unread}".rstrip())
    tops, bottom = [], TOP
    for maps in lines:
        more_lines = max(each.title.count("\n") for each in maps)
        tops.append(bottom + (TITLE + 0.13 * more_lines if maps[0].title else GAP))
        bottom = tops[-1] + size
    height = bottom + margin + CAPTION_LINE * len(caption.splitlines()) + 0.08
    figure = plt.figure(figsize=(WIDTH, height))

    def axes_at(x: float, top: float, wide: float, high: float) -> Axes:
        return figure.add_axes((x / WIDTH, 1 - (top + high) / height, wide / WIDTH, high / height))

    for line, maps in enumerate(lines):
        for place, each in enumerate(maps):
            axes = axes_at(left + place * (size + GAP), tops[line], size, size)
            lowest = line + 1 == len(lines) or place >= len(lines[line + 1])
            image = _show(axes, each, darkest, size / len(each.labels) >= WRITTEN)
            axes.tick_params(labelleft=place == 0, labelbottom=lowest)
            axes.tick_params(axis="x", rotation=90 if named else 0)
            axes.set_ylabel(each.axis if place == 0 else "")
            axes.set_xlabel(each.axis.partition(",")[0] if lowest else "")
    figure.suptitle(f"{title}: linear CKA of what each block puts out", y=1 - 0.08 / height)
    write_caption(figure, caption, y=0.04 / height, va="bottom")
    high = min(2.0, bottom - tops[0])
    bar = axes_at(left + across * (size + GAP) + 0.1, (tops[0] + bottom - high) / 2, 0.1, high)
    figure.colorbar(image, cax=bar, label="linear CKA")
    return figure


def _show(axes: Axes, shown: Map, darkest: float, written: bool) -> QuadMesh:
    import numpy as np

    mesh = axes.pcolormesh(shown.values, vmin=darkest, vmax=1, cmap="viridis")
    middles = [place + 0.5 for place in range(len(shown.labels))]
    axes.set_xticks(middles, shown.labels)
    axes.set_yticks(middles, shown.labels)
    for (down, across), value in np.ndenumerate(shown.values) if written else ():
        colour = "black" if value - darkest > 0.6 * (1 - darkest) else "white"
        axes.text(across + 0.5, down + 0.5, f"{value:.2f}", size=7, ha="center", va="center", color=colour)
    if not shown.axis:
        axes.invert_yaxis()
    axes.tick_params(length=0, labelrotation=0)
    axes.set_title(shown.title, pad=3, y=1.0)
    return mesh
