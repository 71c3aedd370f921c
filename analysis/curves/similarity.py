"""Heat maps of linear CKA between layers, epochs or initialisations, of runs with `--keep-maps`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitinit.analysis.curves.cka import cka
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.kept import NONE, Kept, kept, kept_at_one_seed
from vitinit.analysis.figures.style import WIDTH, file_part, finish, heat_bar, not_in, short
from vitinit.analysis.frame import Study
from vitinit.analysis.unread import marked, said

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from seaborn import FacetGrid

Matrices = Mapping[str, tuple[Sequence[Any], "NDArray[Any]"]]
"""By panel: what lines and columns are of, and CKA between them."""


@CURVES.add(
    "cka_layers",
    NONE,
    caption="Bright blocks are layers that represent the images alike.",
    place=9,
)
def layers(study: Study) -> dict[str, FacetGrid]:
    """Draw CKA between the layers of a run, before and after training: a figure per dataset, two maps per row."""
    figures = {}
    for column, runs in kept(study).items():
        maps = {}
        for row, run in runs.items():
            for place, when in ((0, "before"), (-1, "after")):
                grams_LBnn = run.maps.grams_ELBnn[place]
                maps[f"{short(row)}{marked([run.record])}, {when}"] = (
                    range(1, len(grams_LBnn) + 1),
                    cka(grams_LBnn, grams_LBnn),
                )
        figures[f"cka_layers-{file_part(column)}"] = _draw(maps, "Between layers", "layer", column, runs)
    return figures


@CURVES.add(
    "cka_epochs",
    "no run with attention maps of three epochs (--keep-maps --maps-at EPOCH)",
    caption="A dark first line is a layer that training has changed, a bright field are epochs in which it rests.",
    place=10,
)
def epochs(study: Study) -> dict[str, FacetGrid]:
    """Draw CKA between epochs of a run, by layer: a figure per row and dataset with maps of three epochs or more."""
    figures: dict[str, FacetGrid] = {}
    for column, runs in kept(study).items():
        for row, run in runs.items():
            if len(run.maps.epochs) > 2:
                grams_LEBnn = run.maps.grams_ELBnn.swapaxes(0, 1)
                maps = {
                    f"layer {layer}": (run.maps.epochs, cka(grams_EBnn, grams_EBnn))
                    for layer, grams_EBnn in enumerate(grams_LEBnn, 1)
                }
                name = not_in(figures, f"cka_epochs-{file_part(column, row)}")
                title = f"{row}{marked([run.record])}: between epochs"
                figures[name] = _draw(maps, title, "epoch", column, {row: run})
    return figures


@CURVES.add(
    "cka_initializers",
    "no two rows with attention maps at one seed (--keep-maps)",
    caption="Bright fields are initialisations that end alike, dark ones differ after training too.",
    place=11,
)
def initializers(study: Study) -> dict[str, FacetGrid]:
    """Draw CKA between rows after training, all at one seed: a figure per dataset, a map per layer."""
    import numpy as np

    figures = {}
    for column, runs in kept_at_one_seed(study).items():
        if len(runs) > 1:
            names = [f"{short(row)}{marked([run.record])}" for row, run in runs.items()]
            maps = {}
            for layer in range(min(run.maps.grams_ELBnn.shape[1] for run in runs.values())):
                grams_RBnn = np.stack([run.maps.grams_ELBnn[-1, layer] for run in runs.values()])
                maps[f"layer {layer + 1}"] = names, cka(grams_RBnn, grams_RBnn)
            title = "Between initialisations, after training"
            figures[f"cka_initializers-{file_part(column)}"] = _draw(maps, title, "", column, runs)
    return figures


def _draw(maps: Matrices, title: str, axis: str, column: str, runs: dict[str, Kept]) -> FacetGrid:
    """Draw matrices on one colour scale, from the tenth below all values to 1."""
    import pandas as pd
    import seaborn as sns

    data = pd.DataFrame(
        [
            (panel, one, other, value)
            for panel, (labels, values) in maps.items()
            for one, line in zip(labels, values, strict=True)
            for other, value in zip(labels, line, strict=True)
        ],
        columns=["panel", "one", "other", "cka"],
    )
    across = min(4, len(maps))
    high = 1.2 * min(WIDTH / across, 2.0)
    grid = sns.FacetGrid(
        data,
        col="panel",
        col_order=list(maps),
        col_wrap=across,
        sharex=False,
        sharey=False,
        height=high,
        aspect=WIDTH / across / high,
    )
    darkest = math.floor(10 * float(data["cka"].min())) / 10
    grid.map_dataframe(_show, darkest=darkest, named=not axis)
    grid.set_axis_labels(axis, axis)
    for place, axes in enumerate(grid.axes.flat):
        if not axis and place % across:
            axes.set_yticklabels([])
    seeds = " or ".join(map(str, sorted({run.record.spec.seed for run in runs.values()})))
    order = "" if axis else "columns in the order of lines"
    note = "; ".join(filter(None, [f"{column}, seed {seeds}", order, said(run.record for run in runs.values())]))
    finish(grid, f"{title}: linear CKA of what each block puts out", note)
    heat_bar(grid, "linear CKA")
    return grid


def _show(data: Any, darkest: float, named: bool, **_: Any) -> None:
    import matplotlib.pyplot as plt

    labels = list(dict.fromkeys(data["one"]))
    values = data["cka"].to_numpy().reshape(len(labels), len(labels))
    axes = plt.gca()
    axes.imshow(values, vmin=darkest, vmax=1, cmap="viridis", origin="upper" if named else "lower")
    step = 1 if named else -(-len(labels) // 6)
    places = range(0, len(labels), step)
    axes.set_xticks([] if named else places, [] if named else labels[::step])
    axes.set_yticks(places, labels[::step])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
