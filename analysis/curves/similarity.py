"""Heat maps of linear CKA between initialisations, of runs with `--keep-maps`."""

from typing import Any

import numpy as np
import pandas as pd

from vitinit.analysis.curves.cka import cka
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.kept import kept, source
from vitinit.analysis.figures.style import WIDTH, Panels, file_part, finish, show, with_mark
from vitinit.analysis.frame import Study


@CURVES.add(
    "cka_initializers",
    "no two rows with attention maps at one seed (vitinit run GRID --keep-maps, once the records are removed)",
    caption="Bright fields are initialisations that end alike, dark ones differ after training too.",
)
def initializers(study: Study) -> dict[str, Panels]:
    """Draw CKA between rows after training: a figure per dataset, a map per layer, on one colour scale."""
    figures = {}
    for column, runs in kept(study).items():
        if len(runs) < 2:
            continue
        names = [with_mark(row, record, 40) for row, (record, _) in runs.items()]
        layers = enumerate(zip(*(maps.grams_ELBnn[-1] for _, maps in runs.values()), strict=False), 1)
        maps = {f"layer {layer}": cka(grams := np.stack(gram_matrices), grams) for layer, gram_matrices in layers}
        stacked: Any = pd.concat({panel: pd.DataFrame(values, names, names) for panel, values in maps.items()}).stack()
        data = stacked.rename_axis(["panel", "row", "other"]).reset_index(name="cka")
        grid = show(data, maps, WIDTH / min(max(len(maps), 3), 4), 4, vmin=data["cka"].min(), vmax=1)
        for axes in list(grid.axes.values())[:: grid.across]:
            axes.yaxis.set_visible(True)
            axes.grid(visible=False)
            axes.set_yticks(range(len(names)), names)
        title = "Linear CKA of what each block puts out, between initialisations (columns as lines), after training"
        figures[f"cka_initializers-{file_part(column)}"] = finish(
            study, grid, title, source(column, runs), bar="linear CKA"
        )
    return figures
