"""Final accuracy over how local a ConViT starts, and how many of its layers do (Figure 8 of arXiv 2103.10697)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.scaling import lines
from vitinit.analysis.figures.style import file_part, score_name
from vitinit.analysis.frame import Study

if TYPE_CHECKING:
    from seaborn import FacetGrid

STRENGTH, LAYERS = "locality strength", "GPSA layers"


@CURVES.add(
    "locality",
    "no ConViT with several locality strengths or numbers of GPSA layers",
    caption="Where a line is highest is how local, and for how many layers, this ConViT best starts.",
    place=7,
)
def locality(study: Study) -> dict[str, FacetGrid]:
    """Draw the score over locality strength, lines for numbers of GPSA layers, and reversed: two figures a setting.

    A ViT without a method and with the same setting is a ConViT of no GPSA layers.
    """
    import pandas as pd

    runs: list[tuple[object, ...]] = []
    figures: dict[str, FacetGrid] = {}
    for run_id, column in study.runs[["run_id", "column"]].itertuples(index=False):
        record = study.contents.done[run_id]
        spec, params = record.spec, dict(record.spec.method.params if record.spec.method else {})
        strength, layers = params.pop("locality_strength", None), spec.model.gated_layers
        if strength is not None or not (layers or spec.method):
            setting: object = f"{spec.dataset.label} {spec.model.ungated} {spec.base} {spec.recipe}"
            others = json.dumps(params, sort_keys=True)
            runs.append((setting, others, column, spec.seed, layers, strength, record.score))
    data = pd.DataFrame(runs, columns=["setting", "params", "column", "seed", LAYERS, STRENGTH, "value"])
    vits = data[data[STRENGTH].isna()].drop(columns=STRENGTH)
    for (setting, _), gated in data.dropna(subset=STRENGTH).groupby(["setting", "params"], sort=False):
        # without GPSA layers there is no strength: such a ViT belongs to each
        without = vits[vits["setting"] == setting].merge(gated[[STRENGTH]].drop_duplicates(), how="cross")
        for x, other, its in ((STRENGTH, LAYERS, gated), (LAYERS, STRENGTH, pd.concat([gated, without]))):
            if gated[x].nunique() > 1:
                where = str(its["column"].iloc[0])
                its = its.assign(row=[f"{value:g} ({other})" for value in its[other]], column=where, x=its[x])
                title = f"ConViT's accuracy over {x}" + (" (0: ViT)" if 0 in set(its[x]) else "")
                grid = lines(its.sort_values(["row", "x", "seed"]), x, f"{score_name(study.runs)} (%)", title)
                name = f"locality-{file_part(where, x)}"
                figures[f"{name}-{len(figures)}" if name in figures else name] = grid
    return figures
