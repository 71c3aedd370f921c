"""First-layer attention at initialisation by offset of the key from the query, from records alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import WIDTH, finish, heat_bar, short
from vitinit.analysis.frame import Study
from vitinit.analysis.text import count
from vitinit.benchmark.records.record import RunRecord

if TYPE_CHECKING:
    import pandas as pd
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
    import pandas as pd
    import seaborn as sns
    from matplotlib.colors import LogNorm

    records = _first_maps(study)
    if not records:
        return {}
    data = pd.DataFrame(
        [
            (row, head, down - len(one) // 2, across - len(one) // 2, share)
            for row, record in records.items()
            for head, one in enumerate(record.init.offset_maps or [], 1)
            for down, line in enumerate(one)
            for across, share in enumerate(line)
        ],
        columns=["row", "head", "down", "across", "attention"],
    )
    high = max(data["attention"].max(), 1e-6)
    # Three decades at most, so that one vanishing entry does not flatten the rest.
    norm = LogNorm(max(data["attention"].min() * 0.999, high * 1e-3), high)
    across = min(len(records), 3 if len(records) < 15 else 5)
    most = data["head"].max()
    grid = sns.FacetGrid(
        data,
        col="row",
        col_order=list(records),
        col_wrap=across,
        sharex=False,
        sharey=False,
        height=WIDTH / across / most + 0.25,
        aspect=WIDTH / across / (WIDTH / across / most + 0.25),
    )
    grid.map_dataframe(_heads, norm=norm)
    first = next(iter(records.values()))
    seeds = " or ".join(map(str, sorted({record.spec.seed for record in records.values()})))
    note = "heads side by side; offset of the key from the query, which is in the middle; "
    note += f"{study.column[first.run_id]}, seed {seeds}, mean over {count(first.init.images, 'image')}"
    finish(grid, "First-layer attention at initialisation", note, {row: short(row) for row in records})
    heat_bar(grid, "attention (log scale)")
    return {"attention_offsets": grid}


def _heads(data: pd.DataFrame, norm: Any, **_: Any) -> None:
    """Draw the maps of the heads of one row side by side, with a gap between."""
    import matplotlib.pyplot as plt
    import numpy as np

    maps = [its.pivot(index="down", columns="across", values="attention").to_numpy() for _, its in data.groupby("head")]
    gap = np.full((len(maps[0]), 1), np.nan)
    axes = plt.gca()
    axes.imshow(
        np.hstack([part for one in maps for part in (gap, one.clip(norm.vmin), gap)]), norm=norm, cmap="viridis"
    )
    axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def _first_maps(study: Study) -> dict[str, RunRecord]:
    """Return by row, in the order of the table, the first seed's record with maps, on the first dataset with any."""
    for column in study.columns:
        found = {}
        for row in study.rows:
            records = [run for run in study.cells.get((column, row), []) if run.init.offset_maps]
            if records:
                found[row] = records[0]
        if found:
            return found
    return {}
