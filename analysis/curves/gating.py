"""The gates of each GPSA layer over epochs, as Figure 6 of arXiv 2103.10697 shows them."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

from analysis.curves.probed import outer_labels, probed
from analysis.curves.registry import CURVES
from analysis.figures.style import COLOURS, DASHES, counted, file_part, legend_below, panels, safe
from analysis.frame import Study
from benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 5
COLOURED = [colour for colour in COLOURS if colour != "#000000"]
"""For heads: black is their mean."""


@CURVES.add(
    "gating",
    "no record holds probes of gates (ConViT has some)",
    caption="A gate that falls lets its head look at content in place of position.",
    place=6,
)
def gating(study: Study) -> dict[str, Figure]:
    """A figure a ConViT and dataset, of its first seed: a panel a GPSA layer, a line a head, in black their mean."""
    figures = {}
    for column, cells in probed(study).items():
        for row, runs in cells.items():
            if runs[0].probes[0].gating:
                figures[f"gating-{file_part([column, row])}"] = _figure(runs[0], len(runs), column)
    return figures


def _figure(run: RunRecord, seeds: int, column: str) -> Figure:
    gates_ELH = [probe.gating or [] for probe in run.probes]
    layers, heads = len(gates_ELH[0]), len(gates_ELH[0][0])
    title = f"Share of positional attention: sigmoid of each head's gate\n{safe(run.row)}, {safe(column)}, "
    title += f"seed {run.spec.seed}" + f" (the first of {seeds})" * (seeds > 1)
    across = min(layers, ACROSS)
    figure, grid = panels(layers, 1.3, title, across, sharex=True, sharey=True)
    epochs = [probe.epoch for probe in run.probes]
    for layer, axes in enumerate(grid):
        gates_EH = [gates_LH[layer] for gates_LH in gates_ELH]
        handles = [
            axes.plot(epochs, gates_E, color=COLOURED[head % len(COLOURED)], linewidth=1.0, linestyle=dash)[0]
            for head, gates_E in enumerate(zip(*gates_EH, strict=True))
            for dash in [DASHES[head // len(COLOURED) % len(DASHES)]]
        ]
        handles += axes.plot(epochs, [mean(gates_H) for gates_H in gates_EH], color="black", linewidth=1.8)
        axes.set_title(f"layer {layer + 1}")
        axes.set_ylim(0, 1)
        axes.grid()
    outer_labels(grid, across, "gate")
    legend_below(figure, handles, [*counted("head", heads), "mean"], 10, 1.4, 0.8)
    return figure
