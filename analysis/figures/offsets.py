"""First-layer attention at initialisation by offset of the key from the query, from records alone."""

from typing import Any

import numpy as np
import pandas as pd

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import WIDTH, Panels, finish, show
from vitinit.analysis.frame import Study


@FIGURES.add(
    "attention_offsets",
    "no record holds attention by offset",
    caption="A head with a bright spot starts by looking at one place near the query, one with an even map everywhere.",
)
def offsets(study: Study) -> dict[str, Panels]:
    """Draw a panel per row with its heads side by side: the first dataset with maps, and its first seed.

    One logarithmic scale for all: uniform attention and a sharp impulse differ by two orders of magnitude.
    """
    from matplotlib.colors import LogNorm

    runs = [(where, run) for where, records in study.cells.items() for run in records if run.init.offset_maps]
    if not runs:
        return {}
    (column, _), first = runs[0]
    maps: dict[str, Any] = {}
    for (place, row), run in runs:
        if place == column:
            maps.setdefault(row, np.array(run.init.offset_maps))
    entries = [
        (row, head + 1, down - heads.shape[1] // 2, across - heads.shape[2] // 2, share)
        for row, heads in maps.items()
        for (head, down, across), share in np.ndenumerate(heads)
    ]
    data = pd.DataFrame(entries, columns=["row", "head", "down", "across", "attention"])
    high = max(data["attention"].max(), 1e-6)
    # Three decades at most, so that one vanishing entry does not flatten the rest.
    low = max(data["attention"].min() * 0.999, high * 1e-3)
    height, frame = WIDTH / 3 / data["head"].max() + 0.4, ((0, 0), (1, 1))
    beside = {
        row: np.hstack([np.pad(head, frame, constant_values=np.nan) for head in heads.clip(low)])
        for row, heads in maps.items()
    }
    grid = show(data, beside, height, 3 if len(maps) < 15 else 5, height, norm=LogNorm(low, high))
    note = "heads side by side; offset of the key from the query, which is in the middle; "
    note += f"{column}, seed {first.spec.seed}, mean over {first.init.images} images"
    finish(study, grid, "First-layer attention at initialisation", note, bar="attention (log scale)")
    return {"attention_offsets": grid}
