"""Full attention maps, as Figures 3 to 6 of arXiv 2404.01139 show them: of runs that have kept them (--keep-maps).

A map has a row a query token and a column a key token, mean over test images, of the first head. One logarithmic scale,
the same in all figures, around uniform attention 1 / N: a sharp impulse is two orders of magnitude above it.
"""

import textwrap
from hashlib import sha256

import pandas as pd

from vitinit.analysis.figures.kept import kept, source
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import Panels, file_part, finish, panels, with_mark
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
        grid = panels(data, [column], rcParams["figure.figsize"][0] * len(rows) / len(maps), 1)
        axes, norm = grid.axes[column], LogNorm(1 / SPAN, SPAN)
        for (row, panel), map_NN in drawn.items():  # all in one panel: one each would take ten times as long
            x, y = maps.index(panel), rows.index(row)
            grid.images.append(axes.imshow(map_NN, norm=norm, extent=(x + 0.03, x + 0.97, y + 0.97, y + 0.03)))
        axes.set(xlim=(0, len(maps)), ylim=(len(rows), 0))
        axes.set_xticks(
            [x + 0.5 for x in range(len(maps))], [textwrap.fill(panel, grid.letters // 6) for panel in maps]
        )
        axes.set_yticks([y + 0.5 for y in range(len(rows))], [textwrap.fill(row, 18) for row in rows])
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
        note = f"of query tokens (lines) to key tokens, head 1; {source(column, runs)}"
        finish(study, grid, "Attention before and after training", note, {column: ""}, "attention, × uniform")
        figures[f"attention_training-{file_part(column)}"] = grid
    return figures
