"""Heat maps of linear CKA between layers, epochs or initialisations, of runs with `--keep-maps`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitinit.analysis.curves.cka import cka
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.kept import NONE, kept, source
from vitinit.analysis.figures.style import OWN_AXES, WIDTH, colour_bar, file_part, finish, show
from vitinit.analysis.frame import Study
from vitinit.analysis.unread import with_mark

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from seaborn import FacetGrid


@CURVES.add("cka_layers", NONE, caption="Bright blocks are layers that represent the images alike.", place=9)
def layers(study: Study) -> dict[str, FacetGrid]:
    """Draw CKA between the layers of a run, before and after training: a figure per dataset, two maps per row."""
    figures = {}
    for column, runs in kept(study).items():
        grams = {
            f"{with_mark(row, run.record, 40)}, {when}": run.maps.grams_ELBnn[place]
            for row, run in runs.items()
            for place, when in ((0, "before"), (-1, "after"))
        }
        title = "Between layers, from the first to the last"
        figures[f"cka_layers-{file_part(column)}"] = _draw(grams, None, title, source(column, runs))
    return figures


@CURVES.add(
    "cka_epochs",
    "no run with attention maps of three epochs (--keep-maps --maps-at EPOCH)",
    caption="A dark first line is a layer that training has changed, a bright field are epochs in which it rests.",
    place=10,
)
def epochs(study: Study) -> dict[str, FacetGrid]:
    """Draw CKA between epochs of a run, by layer: a figure per row and dataset with maps of three epochs or more."""
    return {
        f"cka_epochs-{file_part(column, row)}": _draw(
            {f"layer {layer}": grams for layer, grams in enumerate(run.maps.grams_ELBnn.swapaxes(0, 1), 1)},
            run.maps.epochs,
            f"{row}: between epochs",
            source(column, {row: run}),
        )
        for column, runs in kept(study).items()
        for row, run in runs.items()
        if len(run.maps.epochs) > 2
    }


@CURVES.add(
    "cka_initializers",
    "no two rows with attention maps at one seed (--keep-maps)",
    caption="Bright fields are initialisations that end alike, dark ones differ after training too.",
    place=11,
)
def initializers(study: Study) -> dict[str, FacetGrid]:
    """Draw CKA between rows after training: a figure per dataset, a map per layer."""
    import numpy as np

    figures = {}
    for column, runs in kept(study).items():
        if len(runs) > 1:
            after = [run.maps.grams_ELBnn[-1] for run in runs.values()]
            grams = {f"layer {layer}": np.stack(its) for layer, its in enumerate(zip(*after, strict=False), 1)}
            names = [with_mark(row, run.record, 40) for row, run in runs.items()]
            title = "Between initialisations, after training (columns in the order of lines)"
            figures[f"cka_initializers-{file_part(column)}"] = _draw(grams, names, title, source(column, runs))
    return figures


def _draw(grams: Mapping[str, NDArray[Any]], names: Sequence[Any] | None, title: str, note: str) -> FacetGrid:
    """Draw a map of CKA for each set of Gram matrices, on one colour scale; lines without names count from 1."""
    import numpy as np
    import pandas as pd
    import seaborn as sns

    maps = {panel: cka(its, its) for panel, its in grams.items()}
    data = pd.DataFrame(
        [
            (panel, *(names[place] if names else place + 1 for place in pair), value)
            for panel, values in maps.items()
            for pair, value in np.ndenumerate(values)
        ],
        columns=["panel", "one", "other", "cka"],
    )
    across = min(4, len(maps))
    grid = sns.FacetGrid(data, col="panel", col_wrap=across, height=WIDTH / max(across, 3), **OWN_AXES)
    for place, (panel, axes) in enumerate(grid.axes_dict.items()):
        show(axes, maps[panel], vmin=data["cka"].min(), vmax=1)
        if names and place % across == 0:
            axes.set_yticks(range(len(names)), [str(name) for name in names])
    finish(grid, f"Linear CKA of what each block puts out. {title}", note, layout="compressed")
    colour_bar(grid, "linear CKA")
    return grid
