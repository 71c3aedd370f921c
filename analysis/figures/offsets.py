"""First-layer attention at initialisation by offset of the key from the query, from records alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import OWN_AXES, WIDTH, colour_bar, finish, show
from vitinit.analysis.frame import Study

if TYPE_CHECKING:
    from seaborn import FacetGrid


@FIGURES.add(
    "attention_offsets",
    "no record holds attention by offset",
    caption="A head with a bright spot starts by looking at one place near the query, one with an even map everywhere.",
    place=6,
)
def offsets(study: Study) -> dict[str, FacetGrid]:
    """Draw a panel per row with its heads side by side: the first dataset with maps, and its first seed.

    One logarithmic scale for all: uniform attention and a sharp impulse differ by two orders of magnitude.
    """
    import numpy as np
    import pandas as pd
    import seaborn as sns
    from matplotlib.colors import LogNorm

    cells = {key: next((run for run in runs if run.init.offset_maps), None) for key, runs in study.cells.items()}
    records = [(column, row, run) for (column, row), run in cells.items() if run]
    if not records:
        return {}
    maps = {row: np.array(run.init.offset_maps) for column, row, run in records if column == records[0][0]}
    entries = [(row, *where, share) for row, its in maps.items() for where, share in np.ndenumerate(its)]
    data = pd.DataFrame(entries, columns=["row", "head", "down", "across", "attention"])
    data["head"] += 1
    for offset in ("down", "across"):
        data[offset] -= data.groupby("row")[offset].transform("max") // 2
    high = max(data["attention"].max(), 1e-6)
    # Three decades at most, so that one vanishing entry does not flatten the rest.
    low = max(data["attention"].min() * 0.999, high * 1e-3)
    across = min(len(maps), 3 if len(maps) < 15 else 5)
    width = WIDTH / across
    height = width / data["head"].max() + 0.4
    grid = sns.FacetGrid(data, col="row", col_wrap=across, height=height, aspect=width / height, **OWN_AXES)
    for row, axes in grid.axes_dict.items():
        framed = np.pad(maps[row].clip(low), ((0, 0), (0, 0), (1, 1)), constant_values=np.nan)
        show(axes, np.hstack(list(framed)), norm=LogNorm(low, high))
    column, _, first = records[0]
    note = "heads side by side; offset of the key from the query, which is in the middle; "
    note += f"{column}, seed {first.spec.seed}, mean over {first.init.images} images"
    finish(grid, "First-layer attention at initialisation", note, layout="compressed")
    colour_bar(grid, "attention (log scale)")
    return {"attention_offsets": grid}
