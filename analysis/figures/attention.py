"""Full attention maps, as Figures 3 to 6 of arXiv 2404.01139 show them: of runs that have kept them (--keep-maps).

A map has a row a query token and a column a key token, mean over test images, of the first head. One logarithmic scale,
the same in all figures, around uniform attention 1 / N: a sharp impulse is two orders of magnitude above it.
"""

import textwrap
from hashlib import sha256

import pandas as pd

from vitinit.analysis.figures.kept import kept, source
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import Panels, file_part, finish, show, with_mark
from vitinit.analysis.frame import Study

SPAN = 16
"""The scale goes from this part of uniform attention to so many times it; what is beyond has the colour of its end."""
EPOCHS = {"before": 0, "after": -1}
"""Epochs of kept maps, by what they are called."""


@FIGURES.add(
    "attention_training",
    "no run with attention maps (vitinit run --keep-maps)",
    caption="What differs between the two maps of a layer is what training has changed.",
)
def training(study: Study) -> dict[str, Panels]:
    """Draw the first, the middle and the last layer of each row before and after training: a figure per dataset."""
    from matplotlib import rcParams
    from matplotlib.colors import LogNorm

    figures = {}
    for column, runs in kept(study).items():
        drawn = {}
        for row, run in runs.items():
            depth = run.maps.maps_ELHNN.shape[1]
            for place, layer in {"first": 0, "middle": (depth - 1) // 2, "last": depth - 1}.items():
                for when, epoch in EPOCHS.items():
                    map_NN = run.maps.maps_ELHNN[epoch, layer, 0].astype("float32")
                    map_NN = (map_NN * len(map_NN)).clip(1 / SPAN / 2)
                    drawn[with_mark(row, run.record), f"{place} layer, {when}"] = map_NN
        digests = [(*where, sha256(map_NN.tobytes()).hexdigest()[:16]) for where, map_NN in drawn.items()]
        data = pd.DataFrame(digests, columns=["row", "panel", "digest"])
        rows, maps = list(dict.fromkeys(data["row"])), list(dict.fromkeys(data["panel"]))
        height = rcParams["figure.figsize"][0] / len(maps)
        grid = show(data, drawn, height, len(maps), 0.1, norm=LogNorm(1 / SPAN, SPAN))
        for row in rows:
            axes = grid.axes[row, maps[0]]
            axes.set_yticks([])
            axes.yaxis.set_visible(True)
            axes.set_ylabel(textwrap.fill(row, 18), rotation=0, ha="right", va="center")
        note = f"of query tokens (lines) to key tokens, head 1; {source(column, runs)}"
        titles = {(row, panel): panel if row == rows[0] else "" for row, panel in grid.axes}
        finish(study, grid, "Attention before and after training", note, titles, "attention, × uniform")
        figures[f"attention_training-{file_part(column)}"] = grid
    return figures
