"""Gates of each GPSA layer over epochs, as in Figure 6 of arXiv 2103.10697."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from vitinit.analysis.curves.probed import NARROWEST, WIDEST, coincide, outer_labels, probed
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import (
    CHARACTERS,
    COLOURS,
    DASHES,
    FEW,
    counted,
    file_part,
    legend_below,
    not_in,
    panels,
    safe,
)
from vitinit.analysis.series import Chart, Line, Panel, Scale
from vitinit.benchmark.records.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitinit.analysis.curves.cka import Floats

ACROSS = 5
COLOURED = COLOURS[:-1]
"""Colours of heads; their mean is a dotted black line on top."""


@CURVES.numbers("gating")
def over_epochs(study: Study) -> dict[str, Chart]:
    """Return a chart per ConViT and dataset, of the first seed: a panel per GPSA layer, a line per head, their mean."""
    charts: dict[str, Chart] = {}
    for column, cells in probed(study).items():
        for row, runs in cells.items():
            if runs[0].probes[0].gating:
                charts[not_in(charts, f"gating-{file_part([column, row])}")] = _chart(runs[0], len(runs), column)
    return charts


def _chart(run: RunRecord, seeds: int, column: str) -> Chart:
    import numpy as np

    gates_ELH = np.array([probe.gating for probe in run.probes])
    epochs = np.array([probe.epoch for probe in run.probes])

    def of_one_seed(values_E: Floats) -> Line:
        return Line(epochs, values_E, np.full(len(epochs), np.nan), np.ones(len(epochs), int))

    panels, scale = [], Scale("epoch", "gate", "head")
    for layer, gates_EH in enumerate(gates_ELH.swapaxes(0, 1), 1):
        lines = {f"head {head}": of_one_seed(gates_E) for head, gates_E in enumerate(gates_EH.T, 1)}
        lines["mean"] = of_one_seed(gates_EH.mean(axis=1))
        panels.append(Panel(f"layer {layer}", column, scale, lines, run.row))
    where = f"{run.row}, {column}, seed {run.spec.seed}" + f" (the first of {seeds})" * (seeds > 1)
    return Chart("Share of positional attention: sigmoid of each head's gate", where, panels, over="heads")


@CURVES.add(
    "gating",
    "no record holds probes of gates (ConViT has some)",
    caption="A gate that falls lets its head look at content in place of position.",
    place=6,
)
def gating(study: Study) -> dict[str, Figure]:
    """Return the figures of `over_epochs`, with the mean dotted."""
    return {name: _figure(chart) for name, chart in over_epochs(study).items()}


def _figure(chart: Chart) -> Figure:
    import numpy as np

    across = min(len(chart.panels), ACROSS)
    title = f"{chart.title}\n{textwrap.fill(', '.join(map(safe, chart.where.split(', '))), CHARACTERS)}"
    figure, grid = panels(len(chart.panels), 1.5, title, across=across, sharex=True, sharey=True)
    for axes, panel in zip(grid, chart.panels, strict=True):
        *heads, over_all = panel.lines.values()
        handles = [
            axes.plot(
                *(numbers.x, numbers.mean),
                color=COLOURED[head % len(COLOURED)],
                linewidth=width,
                linestyle=dash,
                marker="o" if len(numbers.x) <= FEW else "",
                markersize=3,
            )[0]
            for head, (numbers, width) in enumerate(zip(heads, np.linspace(WIDEST, NARROWEST, len(heads)), strict=True))
            for dash in [DASHES[head // len(COLOURED) % len(DASHES)]]
        ]
        handles += axes.plot(over_all.x, over_all.mean, color="black", linewidth=1.2, linestyle=":")
        axes.set_title(panel.title + ("\nheads coincide" if coincide(heads, 1.0) else ""), y=1.0)
        axes.set_ylim(0, 1)
        axes.grid()
    outer_labels(grid, chart.panels[0].scale.y)
    legend_below(figure, handles, [*counted("head", len(heads)), "mean"])
    return figure
