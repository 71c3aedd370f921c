"""Full attention maps, as Figures 3 to 6 of arXiv 2404.01139 show them: of runs that have kept them (--keep-maps).

A map has a row a query token and a column a key token, mean over test images, of the first head. One logarithmic scale,
the same in all figures, around uniform attention 1 / N: a sharp impulse is two orders of magnitude above it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitinit.analysis.figures.kept import NONE, Kept, kept
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import CAPTION_LINE, WIDTH, file_part, not_in, safe, wrap_caption, write_caption
from vitinit.analysis.text import count
from vitinit.analysis.unread import marked, said, with_mark

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

ZOOM_ROWS = 3
"""The zoom shows so many rows of tokens: 48 tokens of a 16 x 16 grid, as in the paper."""
ACROSS = 6
"""At most so many maps beside one another."""
SPAN = 16
"""The scale goes from this part of uniform attention to so many times it; what is beyond has the colour of its end."""
LEFT, RIGHT, TOP, BOTTOM, GAP = 1.2, 0.75, 0.52, 0.36, 0.06
"""Inches: labels, scale, titles, numbers of tokens, and between maps."""


@dataclass(frozen=True)
class MapPanel:
    """One map in a figure."""

    shares_NN: np.ndarray
    block: int
    """Tokens in a row of the grid, which is square: the size of a diagonal block."""
    title: str = ""
    zoomed: int | None = None
    """So many tokens of the upper left corner get a red box."""
    blocks: bool = False
    """True for white boxes around the diagonal blocks."""


@FIGURES.add(
    "attention_before",
    NONE,
    caption="Bright diagonals are structure that a model starts with, an even map is none.",
    place=7,
)
def before(study: Study) -> dict[str, Figure]:
    """At initialisation: a line per row, the first, the middle and the last layer, each with a zoom."""
    return dict(_zooms(study, "before"))


@FIGURES.add(
    "attention_after",
    NONE,
    caption="Diagonals that are still there were kept by training, new ones were learned.",
    place=8,
)
def after(study: Study) -> dict[str, Figure]:
    """The same after training."""
    return dict(_zooms(study, "after"))


@FIGURES.add(
    "attention_training",
    NONE,
    caption="What differs between the two maps of a layer is what training has changed.",
    place=9,
)
def training(study: Study) -> dict[str, Figure]:
    """Before and after training beside one another: a line per row, the first, the middle and the last layer."""
    figures = {}
    for column, runs in kept(study).items():
        lines = {
            with_mark(row, run.record): [
                MapPanel(maps_LHNN[layer, 0], run.side, f"layer {layer + 1}\n{when}")
                for layer in _layers(run)
                for when, maps_LHNN in (("before", run.maps.before_LHNN), ("after", run.maps.after_LHNN))
            ]
            for row, run in runs.items()
        }
        title = "Attention before and after training"
        figures[f"attention_training-{file_part([column])}"] = _draw(lines, title, what(study, runs))
    return figures


@FIGURES.add(
    "attention_layers",
    NONE,
    caption="Which layers start with structure, and which of them keep it?",
    place=10,
)
def layers(study: Study) -> dict[str, Figure]:
    """All layers of each row, before and after training."""
    figures: dict[str, Figure] = {}
    for column, runs in kept(study).items():
        for row, run in runs.items():
            lines = {}
            depth = len(run.maps.before_LHNN)
            for when, maps_LHNN in (("before", run.maps.before_LHNN), ("after", run.maps.after_LHNN)):
                for first in range(0, depth, ACROSS):
                    some = range(first, min(depth, first + ACROSS))
                    lines[when if first == 0 else f"{when}, from {first + 1}"] = [
                        MapPanel(maps_LHNN[layer, 0], run.side, f"layer {layer + 1}") for layer in some
                    ]
            title = f"Attention of all layers, {safe(row)}{marked([run.record])}"
            name = not_in(figures, f"attention_layers-{file_part([column, row])}")
            figures[name] = _draw(lines, title, what(study, {row: run}))
    return figures


def _zooms(study: Study, when: str) -> Iterator[tuple[str, Figure]]:
    for column, runs in kept(study).items():
        lines: dict[str, list[MapPanel]] = {}
        for row, run in runs.items():
            label, zoomed = with_mark(row, run.record), _zoomed(run)
            lines[label] = []
            for layer in _layers(run):
                map_NN = (run.maps.before_LHNN if when == "before" else run.maps.after_LHNN)[layer, 0]
                corner = map_NN[:zoomed, :zoomed]
                lines[label] += [
                    MapPanel(map_NN, run.side, f"layer {layer + 1}", zoomed=zoomed),
                    MapPanel(corner, run.side, f"tokens 1–{zoomed}", blocks=True),
                ]
        caption = f"red: the part beside it; white: tokens of one image row\n{what(study, runs)}"
        yield f"attention_{when}-{file_part([column])}", _draw(lines, f"Attention {when} training", caption)


def _layers(run: Kept) -> list[int]:
    """First, middle and last: 1, 6 and 12 of 12."""
    depth = len(run.maps.before_LHNN)
    return sorted({0, (depth - 1) // 2, depth - 1})


def _zoomed(run: Kept) -> int:
    """Return the number of tokens in the zoom: whole rows of the grid, at most half of them."""
    return min(ZOOM_ROWS, -(-run.side // 2)) * run.side


def what(study: Study, runs: dict[str, Kept]) -> str:
    """Return the caption of maps: dataset, seed, head, images."""
    first, *_ = runs.values()
    seeds = " or ".join(map(str, sorted({run.record.spec.seed for run in runs.values()})))
    column = study.column[first.record.run_id]
    unread = said(run.record for run in runs.values())
    where = f"{safe(column)}, seed {seeds}, head 1, mean over {count(first.maps.images, 'test image')}"
    return f"{where}\n{unread}".rstrip()


def _draw(lines: dict[str, list[MapPanel]], title: str, caption: str) -> Figure:
    """A line of panels for each label."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    across = max(len(panels) for panels in lines.values())
    size = min(1.2, (WIDTH - LEFT - RIGHT) / across - GAP)
    width = LEFT + across * (size + GAP) + RIGHT
    caption = wrap_caption(caption, width)
    foot = CAPTION_LINE * len(caption.splitlines()) + 0.08
    below = foot + BOTTOM
    height = TOP + len(lines) * (size + GAP) + below
    figure = plt.figure(figsize=(width, height))
    figure.suptitle(title, y=1 - 0.08 / height)
    write_caption(figure, caption, y=0.04 / height, va="bottom")
    titles: dict[int, str] = {}

    def axes_at(left: float, top: float, wide: float, high: float) -> Axes:
        return figure.add_axes((left / width, 1 - (top + high) / height, wide / width, high / height))

    for line, (label, panels) in enumerate(lines.items()):
        for place, panel in enumerate(panels):
            axes = axes_at(LEFT + place * (size + GAP), TOP + line * (size + GAP), size, size)
            image = _show(axes, panel)
            if titles.get(place) != panel.title:
                titles[place] = panel.title
                axes.set_title(panel.title, fontsize=7, pad=3)
            ends = (0, len(panel.shares_NN) - 1)
            if place == 0:
                axes.set_yticks(ends, [str(1 + end) for end in ends])
                upper, lower = axes.get_yticklabels()
                upper.set_verticalalignment("top")
                lower.set_verticalalignment("bottom")
                axes.set_ylabel(textwrap.fill(safe(label), 16), rotation=0, ha="right", va="center", labelpad=2)
            if line == max(line for line, panels in enumerate(lines.values()) if place < len(panels)):
                axes.set_xticks(ends, [str(1 + end) for end in ends])
                left, right = axes.get_xticklabels()
                left.set_horizontalalignment("left")
                right.set_horizontalalignment("right")
    maps = height - TOP - below
    figure.text((LEFT + across * (size + GAP) / 2) / width, (foot + 0.04) / height, "key token", ha="center")
    figure.text(0.04 / width, (below + maps / 2) / height, "query token", rotation=90, va="center")
    bar_height = min(2.0, maps - GAP)
    bar_axes = axes_at(width - RIGHT + 0.1, TOP + (maps - GAP - bar_height) / 2, 0.1, bar_height)
    bar = figure.colorbar(image, cax=bar_axes, extend="both", label="attention, × uniform")
    bar.set_ticks([1 / SPAN, 1, SPAN], labels=[f"1/{SPAN}", "1", str(SPAN)])
    bar.ax.yaxis.set_minor_locator(NullLocator())
    return figure


def _show(axes: Axes, panel: MapPanel) -> AxesImage:
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    values = panel.shares_NN.astype("float32") * panel.block**2
    image = axes.imshow(values.clip(1 / SPAN / 2), norm=LogNorm(1 / SPAN, SPAN), cmap="viridis")
    if panel.zoomed:
        axes.add_patch(Rectangle((-0.5, -0.5), panel.zoomed, panel.zoomed, fill=False, edgecolor="red", clip_on=False))
    for first in range(0, len(values) if panel.blocks else 0, panel.block):
        corner = (first - 0.5, first - 0.5)
        axes.add_patch(Rectangle(corner, panel.block, panel.block, fill=False, edgecolor="white", linewidth=0.5))
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=2, pad=2)
    axes.spines[:].set_visible(False)
    return image
