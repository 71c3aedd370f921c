"""First-layer attention at initialisation by offset of the key from the query, from records alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.figures.registry import FIGURES
from analysis.figures.style import WIDTH, safe
from analysis.frame import Study
from analysis.text import count
from benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@FIGURES.add(
    "attention_offsets",
    "no record holds attention by offset",
    caption="A head with a bright spot starts by looking at one place near the query, one with an even map everywhere.",
    place=6,
)
def offsets(study: Study) -> dict[str, Figure]:
    """First-layer attention at initialisation by offset: a line of maps a row label, a map a head; None without maps.

    The first dataset with maps, and of each row its first seed there. One logarithmic scale for all maps: uniform
    attention and a sharp impulse differ by two orders of magnitude.
    """
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    records = _first_maps(study)
    if not records:
        return {}
    maps = {row: [np.array(head) for head in record.init.offset_maps or []] for row, record in records.items()}
    values = np.concatenate([head.ravel() for heads in maps.values() for head in heads])
    high = max(float(values.max()), 1e-6)
    # Three decades at most, so that one vanishing entry does not flatten the rest.
    low = max(float(values.min()) * 0.999, high * 1e-3)
    columns = max(len(heads) for heads in maps.values())
    figure, grid = plt.subplots(
        len(maps), columns, figsize=(WIDTH, 0.9 * len(maps) + 0.9), squeeze=False, layout="constrained"
    )
    lowest = {head: line for line, heads in enumerate(maps.values()) for head in range(len(heads))}
    for line, (row, heads) in enumerate(maps.items()):
        for head, axes in enumerate(grid[line]):
            if head >= len(heads):
                axes.set_axis_off()
                continue
            r = len(heads[head]) // 2
            edges = (-r - 0.5, r + 0.5, r + 0.5, -r - 0.5)
            image = axes.imshow(heads[head].clip(low), norm=LogNorm(low, high), cmap="viridis", extent=edges)
            for width, color in ((2.0, "black"), (1.0, "white")):  # seen on every colour of the map
                axes.add_patch(Rectangle((-0.5, -0.5), 1, 1, fill=False, edgecolor=color, linewidth=width))
            axes.set(xticks=sorted({-r, 0, r}), yticks=sorted({-r, 0, r}))
            axes.tick_params(labelsize=7, labelbottom=lowest[head] == line, labelleft=head == 0)
            if line == 0 or head >= max(len(other) for other in list(maps.values())[:line]):
                axes.set_title(f"head {head + 1}", fontsize=7)
        grid[line][0].set_ylabel(safe(row), rotation=0, ha="right", va="center")
    first = next(iter(records.values()))
    figure.supxlabel("offset of the key from the query: columns across, rows down; square: the query", fontsize=8)
    seeds = sorted({record.spec.seed for record in records.values()})
    figure.suptitle(
        f"First-layer attention at initialisation\n{safe(study.column[first.run_id])}, "
        f"seed {' or '.join(map(str, seeds))}, "
        f"mean over {count(first.init.images, 'image')}",
    )
    figure.colorbar(image, ax=grid, label="attention (log scale)", shrink=0.6, aspect=30)
    return {"attention_offsets": figure}


def _first_maps(study: Study) -> dict[str, RunRecord]:
    """By row, in the order of the table: the first seed's record with maps, on the first dataset that has any."""
    with_maps = [r for r in study.contents.done.values() if r.init.offset_maps]
    for column in study.columns:
        here = [record for record in with_maps if study.column[record.run_id] == column]
        if here:
            here.sort(key=lambda record: record.spec.seed)
            return {row: next(r for r in here if r.row == row) for row in study.rows if any(r.row == row for r in here)}
    return {}
