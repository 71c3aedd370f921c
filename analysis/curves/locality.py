"""Final accuracy over how local a ConViT starts, and how many of its layers do (Figure 8 of arXiv 2103.10697)."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from analysis.curves.registry import CURVES
from analysis.figures.style import (
    BAND,
    COLOURS,
    DASHES,
    MARKERS,
    TOP1,
    Look,
    file_part,
    line_with_band,
    panels,
    safe,
    span,
)
from analysis.frame import Study
from benchmark.spec import RunSpec

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STRENGTH, LAYERS = "locality strength", "GPSA layers"


@CURVES.add(
    "locality",
    "no ConViT with several locality strengths or numbers of GPSA layers",
    caption="Where a line is highest is how local, and for how many layers, this ConViT best starts.",
    place=7,
)
def locality(study: Study) -> dict[str, Figure]:
    """A figure a dataset and setting: test top-1 over locality strength, a line a number of GPSA layers; and reversed.

    A ViT without a method and with the same setting is a ConViT of no GPSA layers.
    """
    import pandas as pd

    convits, vits = _runs(study)
    figures = {}
    for (dataset, setting, _), its in convits.items():
        drawn = pd.DataFrame(its)
        several = [name for name in (STRENGTH, LAYERS) if drawn[name].nunique() > 1]
        if several:
            zero = [{**run, STRENGTH: strength} for run in vits[dataset, setting] for strength in set(drawn[STRENGTH])]
            name = f"locality-{file_part([dataset])}"
            name = f"{name}-{file_part([its[0]['row']])}" if name in figures else name
            figures[name] = _figure(pd.DataFrame([*its, *zero]), dataset, several)
    return figures


Key = tuple[str, ...]
Runs = defaultdict[Key, list[dict[str, Any]]]


def _runs(study: Study) -> tuple[Runs, Runs]:
    """ConViTs by dataset, setting and parameters that both axes leave; ViTs without a method by dataset and setting."""
    convits: Runs = defaultdict(list)
    vits: Runs = defaultdict(list)
    for record in (study.contents.done[run_id] for run_id in study.runs["run_id"]):
        spec, params = record.spec, dict(record.spec.method.params if record.spec.method else {})
        run = {"row": record.row, "seed": spec.seed, "top1": record.top1, LAYERS: spec.model.gated_layers}
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


def _figure(runs: pd.DataFrame, dataset: str, several: list[str]) -> Figure:
    n = span(runs.groupby([STRENGTH, LAYERS]).size())
    title = f"ConViT's locality and test accuracy, {safe(dataset)}: n={n}\n{BAND}"
    figure, grid = panels(len(several), 2.5, title, sharey=True)
    for axes, x in zip(grid, several, strict=True):
        _lines(axes, runs, x, LAYERS if x == STRENGTH else STRENGTH)
    grid[0].set_ylabel(TOP1)
    # legends below the axes leave too little room for the label
    figure.set_layout_engine("constrained", w_pad=0.12)
    return figure


def _lines(axes: Axes, runs: pd.DataFrame, x: str, other: str) -> None:
    """Top-1 over `x`, a line for each value of `other`."""
    if x == STRENGTH:
        runs = runs[runs[LAYERS] > 0]  # without GPSA layers there is no strength
        axes.set_xscale("log")
    lines = {}
    for place, (value, its) in enumerate(runs.groupby(other)):
        look = Look(*(looks[place % len(looks)] for looks in (COLOURS, DASHES, MARKERS)))
        lines[f"{value:g}"] = line_with_band(axes, its.groupby(x)["top1"], look, look.marker)
    ticks = sorted(set(runs[x]))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(f"{x} (0: ViT)" if 0 in ticks else x)
    axes.grid()
    axes.legend(
        lines.values(), lines, title=other, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=4, frameon=False
    )
