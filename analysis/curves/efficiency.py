"""Accuracy over the number of training images, and what a row gains on its base (Figure 2a of arXiv 2103.10697)."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.train_size import over_sizes, several_sizes, sizes_panel
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import BAND, file_part, legend, panels, safe, score_name, span
from vitinit.analysis.series import Chart
from vitinit.analysis.tables import gap
from vitinit.analysis.tables.notes import compared_with
from vitinit.analysis.tables.shared import check_baseline

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@CURVES.numbers("sample_efficiency")
def over_train_size(study: Study, baseline: str | None = None) -> dict[str, Chart]:
    """A chart per dataset with several train sizes: the score, and beside it the gain relative to the base's.

    Which row is the base of which: as in the table of gaps.
    """
    check_baseline(baseline, [study])
    baselines = gap.baselines(study, baseline)
    charts = {}
    for name, runs in several_sizes(study).items():
        gains = relative_gains(runs, baselines)
        if gains.empty:
            continue
        compared = {row: other for row, other in baselines.items() if row in set(gains["row"])}
        base = compared_with(compared) if len(set(compared.values())) == 1 else "the own base"
        accuracy = sizes_panel(score_name(runs), runs, "score", f"{score_name(runs)} (%)", study)
        gain = sizes_panel(f"gain relative to {base}", gains, "gain", "gain (%)", study)
        panels = [accuracy, replace(gain, reference=0.0)]
        charts[f"sample_efficiency-{file_part([name])}"] = Chart("Sample efficiency", name, panels)
    return charts


@CURVES.add(
    "sample_efficiency",
    "no dataset with several train sizes, of a method and its base",
    caption="A gain that falls from left to right shrinks as data grow.",
    place=8,
    to_baseline=True,
)
def sample_efficiency(study: Study, baseline: str | None = None) -> dict[str, Figure]:
    """A figure per dataset with several train sizes: the score, and beside it the gain relative to the base's."""
    sizes = {f"sample_efficiency-{file_part([name])}": runs for name, runs in several_sizes(study).items()}
    figures = {}
    for name, chart in over_train_size(study, baseline).items():
        runs = sizes[name]
        epochs = span(runs["epochs"])
        title = f"{chart.title}, {safe(chart.where)}: {epochs} epoch{'s' * (epochs != '1')}"
        figure, grid = panels(2, 2.3, title, BAND)
        handles = [over_sizes(axes, panel, study) for axes, panel in zip(grid, chart.panels, strict=True)]
        legend(figure, study, handles[0])
        for axes, panel in zip(grid, chart.panels, strict=True):
            axes.set_ylabel(panel.scale.y)
            n = span(int(each) for numbers in panel.lines.values() for each in numbers.n)
            axes.set_title(textwrap.fill(f"{safe(panel.title)}: n={n}", 40))
        grid[1].axhline(0, color="black", linewidth=0.8, zorder=1)
        figures[name] = figure
    return figures


def relative_gains(runs: pd.DataFrame, baselines: dict[str, str]) -> pd.DataFrame:
    """The score over the base's of the same seed and size, minus 1, in percent: runs with a column `gain`."""
    pairs = ["train_images", "seed"]
    theirs = runs[runs["score"] > 0][["row", *pairs, "score"]].rename(columns={"row": "baseline"})
    ours = runs.assign(baseline=runs["row"].map(baselines)).dropna(subset="baseline")
    both = ours.merge(theirs, on=["baseline", *pairs], suffixes=("", "_baseline"))
    return both.assign(gain=100 * (both["score"] / both["score_baseline"] - 1))
