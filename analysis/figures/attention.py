"""Full attention maps, as Figures 3 to 6 of arXiv 2404.01139 show them: of runs that have kept them (--keep-maps).

A map has a row a query token and a column a key token, mean over test images, of the first head. One logarithmic scale,
the same in all figures, around uniform attention 1 / N: a sharp impulse is two orders of magnitude above it.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from vitinit.analysis.figures.kept import NONE, Kept, kept
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import WIDTH, file_part, finish, heat_bar, not_in
from vitinit.analysis.frame import Study
from vitinit.analysis.text import count
from vitinit.analysis.unread import marked, said, with_mark

if TYPE_CHECKING:
    import numpy as np
    from seaborn import FacetGrid

ZOOM_ROWS = 3
"""The zoom shows so many rows of tokens: 48 tokens of a 16 x 16 grid, as in the paper."""
SPAN = 16
"""The scale goes from this part of uniform attention to so many times it; what is beyond has the colour of its end."""
ENDS = ("first layer", "middle layer", "last layer")

Maps = dict[tuple[str, str], "np.ndarray"]
"""Maps by line and column of a figure."""


@FIGURES.add(
    "attention_before",
    NONE,
    caption="Bright diagonals are structure that a model starts with, an even map is none.",
    place=7,
)
def before(study: Study) -> dict[str, FacetGrid]:
    """Draw attention at initialisation: a line per row, the first, the middle and the last layer, each with a zoom."""
    return _zooms(study, "before")


@FIGURES.add(
    "attention_after",
    NONE,
    caption="Diagonals that are still there were kept by training, new ones were learned.",
    place=8,
)
def after(study: Study) -> dict[str, FacetGrid]:
    """Draw the same after training."""
    return _zooms(study, "after")


@FIGURES.add(
    "attention_training",
    NONE,
    caption="What differs between the two maps of a layer is what training has changed.",
    place=9,
)
def training(study: Study) -> dict[str, FacetGrid]:
    """Draw maps before and after training beside one another: a line per row, first, middle and last layer."""
    figures = {}
    for column, runs in kept(study).items():
        maps = {
            (with_mark(row, run.record), f"{name}, {when}"): _of(run, when)[layer, 0]
            for row, run in runs.items()
            for name, layer in _ends(run).items()
            for when in ("before", "after")
        }
        title = "Attention before and after training"
        figures[f"attention_training-{file_part(column)}"] = _draw(maps, title, what(study, runs))
    return figures


@FIGURES.add(
    "attention_layers",
    NONE,
    caption="Which layers start with structure, and which of them keep it?",
    place=10,
)
def layers(study: Study) -> dict[str, FacetGrid]:
    """Draw all layers of each row, before and after training."""
    figures: dict[str, FacetGrid] = {}
    for column, runs in kept(study).items():
        for row, run in runs.items():
            maps = {
                (when, f"layer {layer}"): map_HNN[0]
                for when in ("before", "after")
                for layer, map_HNN in enumerate(_of(run, when), 1)
            }
            title = f"Attention of all layers, {row}{marked([run.record])}"
            name = not_in(figures, f"attention_layers-{file_part(column, row)}")
            figures[name] = _draw(maps, title, what(study, {row: run}))
    return figures


def _zooms(study: Study, when: str) -> dict[str, FacetGrid]:
    figures = {}
    for column, runs in kept(study).items():
        side = min(run.side for run in runs.values())
        zoom = min(ZOOM_ROWS, -(-side // 2)) * side
        maps: Maps = {}
        for row, run in runs.items():
            label = with_mark(row, run.record)
            for name, layer in _ends(run).items():
                maps[label, name] = _of(run, when)[layer, 0]
                maps[label, f"{name}, zoom"] = maps[label, name][:zoom, :zoom]
        title, note = f"Attention {when} training", f"zoom: the first {zoom} tokens, red box; {what(study, runs)}"
        figures[f"attention_{when}-{file_part(column)}"] = _draw(maps, title, note, zoom)
    return figures


def _of(run: Kept, when: str) -> np.ndarray:
    """Return maps as multiples of uniform attention."""
    maps_LHNN = run.maps.before_LHNN if when == "before" else run.maps.after_LHNN
    times_LHNN: np.ndarray = maps_LHNN.astype("float32") * maps_LHNN.shape[-1]
    return times_LHNN


def _ends(run: Kept) -> dict[str, int]:
    """Return the first, middle and last layer: 1, 6 and 12 of 12."""
    depth = len(run.maps.before_LHNN)
    return dict(zip(ENDS, (0, (depth - 1) // 2, depth - 1), strict=True))


def what(study: Study, runs: dict[str, Kept]) -> str:
    """Return the note on maps: dataset, seed, head, images."""
    first, *_ = runs.values()
    seeds = " or ".join(map(str, sorted({run.record.spec.seed for run in runs.values()})))
    where = (
        f"{study.column[first.record.run_id]}, seed {seeds}, head 1, mean over {count(first.maps.images, 'test image')}"
    )
    return "; ".join(filter(None, [where, said(run.record for run in runs.values())]))


def _draw(maps: Maps, title: str, note: str, zoom: int = 0) -> FacetGrid:
    """Draw a line of maps for each label; a zoom of so many tokens is boxed in maps of more."""
    import pandas as pd
    import seaborn as sns

    data = pd.DataFrame(
        [(row, panel, place) for place, (row, panel) in enumerate(maps)], columns=["row", "panel", "map"]
    )
    height = min(1.3, WIDTH / data["panel"].nunique() / 1.08)
    grid = sns.FacetGrid(data, row="row", col="panel", height=height, aspect=1.08, sharex=False, sharey=False)
    grid.map_dataframe(_show, maps=list(maps.values()), zoom=zoom)
    grid.set_titles("")
    last = grid.row_names[-1]
    for (row, panel), axes in grid.axes_dict.items():
        if (row, panel) not in maps:
            axes.set_axis_off()
        elif panel == grid.col_names[0]:
            axes.set_ylabel(textwrap.fill(row, 18), rotation=0, ha="right", va="center")
        if (row, panel) in maps and row == last:
            axes.set_xlabel("key token")
    titles = {(row, panel): panel if row == grid.row_names[0] else "" for row, panel in grid.axes_dict}
    finish(grid, title, note, titles)
    heat_bar(grid, "attention, × uniform")
    return grid


def _show(data: Any, maps: list[np.ndarray], zoom: int, **_: Any) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    axes = plt.gca()
    for place in data["map"]:
        axes.imshow(maps[place].clip(1 / SPAN / 2), norm=LogNorm(1 / SPAN, SPAN), cmap="viridis")
        if zoom and len(maps[place]) > zoom:
            axes.add_patch(Rectangle((-0.5, -0.5), zoom, zoom, fill=False, edgecolor="red"))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
