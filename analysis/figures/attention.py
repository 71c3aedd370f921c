"""Full attention maps, as Figures 3 to 6 of arXiv 2404.01139 show them: of runs that have kept them (--keep-maps).

A map has a row a query token and a column a key token, mean over test images, of the first head. One logarithmic scale,
the same in all figures, around uniform attention 1 / N: a sharp impulse is two orders of magnitude above it.
"""

from __future__ import annotations

import math
import textwrap
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from vitinit.analysis.figures.kept import NONE, kept, source
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import OWN_AXES, WIDTH, colour_bar, file_part, finish, show
from vitinit.analysis.frame import Study
from vitinit.analysis.unread import with_mark

if TYPE_CHECKING:
    from seaborn import FacetGrid

ZOOM_ROWS = 3
"""The zoom shows so many rows of tokens: 48 tokens of a 16 x 16 grid, as in the paper."""
SPAN = 16
"""The scale goes from this part of uniform attention to so many times it; what is beyond has the colour of its end."""
EPOCHS = {"before": 0, "after": -1}
"""Epochs of kept maps, by what they are called."""
CAPTIONS = {
    "attention_before": "Bright diagonals are structure that a model starts with, an even map is none.",
    "attention_after": "Diagonals that are still there were kept by training, new ones were learned.",
    "attention_training": "What differs between the two maps of a layer is what training has changed.",
}


def maps(study: Study, name: str) -> dict[str, FacetGrid]:
    """Draw the first, the middle and the last layer of each row: before or after training with a zoom, or both."""
    import pandas as pd
    import seaborn as sns
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    figures, when = {}, name.removeprefix("attention_")
    for column, runs in kept(study).items():
        side = min(math.isqrt(run.maps.maps_ELHNN.shape[-1]) for run in runs.values())
        zoom = min(ZOOM_ROWS, -(-side // 2)) * side if when in EPOCHS else 0
        drawn = {}
        for row, run in runs.items():
            depth = run.maps.maps_ELHNN.shape[1]
            for place, layer in {"first": 0, "middle": (depth - 1) // 2, "last": depth - 1}.items():
                for epoch in [when] if zoom else EPOCHS:
                    map_NN = run.maps.maps_ELHNN[EPOCHS[epoch], layer, 0].astype("float32")
                    map_NN = (map_NN * len(map_NN)).clip(1 / SPAN / 2)
                    panel = f"{place} layer" + ("" if zoom else f", {epoch}")
                    drawn[with_mark(row, run.record), panel] = map_NN
                    if zoom:
                        drawn[with_mark(row, run.record), f"{panel}, zoom"] = map_NN[:zoom, :zoom]
        digests = [(*where, sha256(map_NN.tobytes()).hexdigest()[:16]) for where, map_NN in drawn.items()]
        data = pd.DataFrame(digests, columns=["row", "panel", "digest"])
        grid = sns.FacetGrid(data, row="row", col="panel", height=WIDTH / data["panel"].nunique(), **OWN_AXES)
        for (row, panel), axes in grid.axes_dict.items():
            map_NN = drawn[row, panel]
            show(axes, map_NN, norm=LogNorm(1 / SPAN, SPAN))
            if len(map_NN) > zoom > 0:
                axes.add_patch(Rectangle((-0.5, -0.5), zoom, zoom, fill=False, edgecolor="red"))
        for row, axes in zip(grid.row_names, grid.axes[:, 0], strict=True):
            axes.set_ylabel(textwrap.fill(row, 18), rotation=0, ha="right", va="center")
        title = f"Attention {when} training" if zoom else "Attention before and after training"
        note = f"of query tokens (lines) to key tokens, head 1; {source(column, runs)}"
        note += f"; zoom: the first {zoom} tokens, red box" if zoom else ""
        titles = {(row, panel): panel if row == grid.row_names[0] else "" for row, panel in grid.axes_dict}
        figures[f"{name}-{file_part(column)}"] = finish(grid, title, note, titles, "compressed")
        colour_bar(grid, "attention, × uniform")
    return figures


for _place, (_name, _caption) in enumerate(CAPTIONS.items(), 7):
    FIGURES.add(_name, NONE, caption=_caption, place=_place)(partial(maps, name=_name))
