"""Full attention maps, as Figures 3 to 6 of arXiv 2404.01139 show them: of runs that have kept them (--keep-maps).

A map has a row a query token and a column a key token, mean over test images, of the first head. One logarithmic scale,
the same in all figures, around uniform attention 1 / N: a sharp impulse is two orders of magnitude above it.
"""

import math
import textwrap
from itertools import product

import numpy as np
import pandas as pd

from vitinit.analysis.figures.kept import kept, source
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import Panels, file_part, finish, panels, with_mark
from vitinit.analysis.frame import Study
from vitinit.initializers.plugins import short_hash

SPAN = 16
"""The scale goes from this part of uniform attention to so many times it; what is beyond has the colour of its end."""
EPOCHS = {"before": 0, "after": -1}
"""Epochs of kept maps, by what they are called."""


@FIGURES.add(
    "attention_training",
    "no run with attention maps (vitinit run GRID --keep-maps, once the records are removed)",
    caption="What differs between the two maps of a layer is what training has changed.",
)
def training(study: Study) -> dict[str, Panels]:
    """Draw the first, the middle and the last layer of each row before and after training: a figure per dataset."""
    from matplotlib import rcParams
    from matplotlib.colors import LogNorm

    figures = {}
    for column, runs in kept(study).items():
        grid, entries = panels(pd.DataFrame(), [column], rcParams["figure.figsize"][0] * len(runs) / 6, 1), []
        (axes,), norm = grid.axes.values(), LogNorm(1 / SPAN, SPAN)
        for y, (row, (record, kept_maps)) in enumerate(runs.items()):
            depth, strip = kept_maps.maps_ELHNN.shape[1], []
            layers = {"first": 0, "middle": (depth - 1) // 2, "last": depth - 1}
            for (place, layer), (when, epoch) in product(layers.items(), EPOCHS.items()):
                map_NN = kept_maps.maps_ELHNN[epoch, layer, 0].astype("float32")
                map_NN = (map_NN * len(map_NN)).clip(1 / SPAN / 2)
                name = with_mark(row, record), f"{place} layer, {when}"
                entries.append((*name, short_hash(map_NN.tobytes())))
                strip.append(np.pad(map_NN, math.ceil(len(map_NN) / 32), constant_values=np.nan))
            # one image a row: one a map, or a panel each, would take up to ten times as long
            grid.images.append(axes.imshow(np.hstack(strip), norm=norm, extent=(-0.5, 5.5, y + 0.5, y - 0.5)))
        grid.data = pd.DataFrame(entries, columns=["row", "panel", "digest"])
        axes.set(xlim=(-0.5, 5.5), ylim=(len(runs) - 0.5, -0.5), frame_on=False)
        for set_ticks, head, most in ((axes.set_xticks, "panel", grid.letters // 6), (axes.set_yticks, "row", 18)):
            names = grid.data[head].unique()
            set_ticks(range(len(names)), [textwrap.fill(text, most) for text in names])
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.grid(visible=False)
        note = f"of query tokens (lines) to key tokens, head 1; {source(column, runs)}"
        finish(study, grid, "Attention before and after training", note, {column: ""}, "attention, × uniform")
        figures[f"attention_training-{file_part(column)}"] = grid
    return figures
