"""Final accuracy over how local a ConViT starts, and how many of its layers do (Figure 8 of arXiv 2103.10697)."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import (
    BAND,
    COLOURS,
    DASHES,
    MARKERS,
    LineStyle,
    file_part,
    legend_of_panel,
    line_with_band,
    not_in,
    panels,
    safe,
    score_name,
    span,
)
from vitinit.analysis.series import Chart, Panel, Scale, line
from vitinit.benchmark.spec import RunSpec

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STRENGTH, LAYERS = "locality strength", "GPSA layers"


@CURVES.numbers("locality")
def charts(study: Study) -> dict[str, Chart]:
    """A chart per setting: the score over locality strength, lines for numbers of GPSA layers, and reversed.

    A ViT without a method and with the same setting is a ConViT of no GPSA layers.
    """
    import pandas as pd

    convits, vits = _runs(study)
    charts: dict[str, Chart] = {}
    for key, its in convits.items():
        drawn = pd.DataFrame(its)
        several = [name for name in (STRENGTH, LAYERS) if drawn[name].nunique() > 1]
        if several:
            zero = [{**run, STRENGTH: strength} for run in vits[key[:2]] for strength in set(drawn[STRENGTH])]
            columns = {run["column"] for run in its}
            column = columns.pop() if len(columns) == 1 else ""
            name = not_in(charts, f"locality-{file_part([column or key[0]])}")
            charts[name] = _chart(pd.DataFrame([*its, *zero]), key[0], column, several, f"{score_name(study.runs)} (%)")
    return charts


@CURVES.add(
    "locality",
    "no ConViT with several locality strengths or numbers of GPSA layers",
    caption="Where a line is highest is how local, and for how many layers, this ConViT best starts.",
    place=7,
)
def locality(study: Study) -> dict[str, Figure]:
    """The same as figures."""
    return {name: _figure(chart) for name, chart in charts(study).items()}


Key = tuple[str, ...]
Runs = defaultdict[Key, list[dict[str, Any]]]


def _runs(study: Study) -> tuple[Runs, Runs]:
    """ConViTs by dataset, setting and parameters that both axes leave; ViTs without a method by dataset and setting."""
    convits: Runs = defaultdict(list)
    vits: Runs = defaultdict(list)
    for record in (study.contents.done[run_id] for run_id in study.runs["run_id"]):
        spec, params = record.spec, dict(record.spec.method.params if record.spec.method else {})
        run = {"column": study.column[record.run_id], "score": record.score, LAYERS: spec.model.gated_layers}
        strength = params.pop("locality_strength", None)
        if strength is not None:
            key = (*_setting(spec), json.dumps(params, sort_keys=True))
            convits[key].append({**run, STRENGTH: strength})
        elif not spec.model.gated_layers and not spec.method:
            vits[_setting(spec)].append(run)
    return convits, vits


def _setting(spec: RunSpec) -> Key:
    setting = spec.model_dump(mode="json", include={"base", "recipe"})
    return spec.dataset.label, json.dumps([spec.model.ungated.model_dump(mode="json"), setting], sort_keys=True)


def _chart(runs: pd.DataFrame, dataset: str, column: str, several: list[str], y: str) -> Chart:
    """`column` is empty where the runs are in several columns of the dataset."""
    where = f"{column or dataset}: n={span(runs.groupby([STRENGTH, LAYERS]).size())}"
    panels = []
    for x in several:
        # without GPSA layers there is no strength
        its, other = (runs[runs[LAYERS] > 0], LAYERS) if x == STRENGTH else (runs, STRENGTH)
        lines = {f"{value:g}": line(group.groupby(x)["score"]) for value, group in its.groupby(other)}
        panels.append(Panel(f"over {x}", column, Scale(x, y, other, log_x=x == STRENGTH), lines))
    return Chart("ConViT's locality and accuracy", where, panels)


def _figure(chart: Chart) -> Figure:
    figure, grid = panels(len(chart.panels), 2.5, f"{chart.title}, {safe(chart.where)}", BAND, sharey=True)
    for axes, panel in zip(grid, chart.panels, strict=True):
        _draw(axes, panel)
    grid[0].set_ylabel(chart.panels[0].scale.y)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    handles = {}
    for place, (value, numbers) in enumerate(panel.lines.items()):
        look = LineStyle(COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)])
        handles[value] = line_with_band(axes, numbers, look)
    if panel.scale.log_x:
        axes.set_xscale("log")
    ticks = sorted({float(x) for numbers in panel.lines.values() for x in numbers.x})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"{panel.scale.x} (0: ViT)" if 0 in ticks else panel.scale.x)
    axes.grid()
    legend_of_panel(axes, list(handles.values()), list(handles), panel.scale.each)
