"""Final accuracy over how local a ConViT starts, and how many of its layers do (Figure 8 of arXiv 2103.10697)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.scaling import lines
from vitinit.analysis.figures.style import file_part, not_in, present, score_name
from vitinit.analysis.frame import Study
from vitinit.benchmark.spec import RunSpec

if TYPE_CHECKING:
    import pandas as pd
    from seaborn import FacetGrid

STRENGTH, LAYERS = "locality strength", "GPSA layers"
Key = tuple[str, ...]


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
    figures: dict[str, FacetGrid] = {}
    for key, data in _settings(study).items():
        columns = present(study.columns, data["column"])
        where = columns[0] if len(columns) == 1 else key[0]
        gated = data[data[LAYERS] > 0]
        for x, other in ((STRENGTH, LAYERS), (LAYERS, STRENGTH)):
            if gated[x].nunique() < 2:
                continue
            its = gated if x == STRENGTH else data  # without GPSA layers there is no strength
            its = its.assign(row=[f"{value:g} ({other})" for value in its[other]], column=where, x=its[x])
            name = not_in(figures, f"locality-{file_part(where, x)}")
            title = f"ConViT's accuracy over {x}" + (" (0: ViT)" if 0 in set(its[x]) else "")
            tidy = its[["column", "row", "seed", "x", "value"]].sort_values(["row", "x", "seed"]).reset_index(drop=True)
            figures[name] = lines(tidy, x, f"{score_name(study.runs)} (%)", title, list(dict.fromkeys(tidy["row"])))
    return figures


def _settings(study: Study) -> dict[Key, pd.DataFrame]:
    """Return runs of ConViTs by dataset, setting and parameters that both axes leave, with the ViTs of that setting."""
    import pandas as pd

    convits: dict[Key, list[tuple[str, int, int, float, float]]] = {}
    vits: dict[Key, list[tuple[str, int, float]]] = {}
    for run_id in study.runs["run_id"]:
        record = study.contents.done[run_id]
        spec, params = record.spec, dict(record.spec.method.params if record.spec.method else {})
        column, strength = study.column[run_id], params.pop("locality_strength", None)
        if strength is not None:
            key = (*_setting(spec), json.dumps(params, sort_keys=True))
            gated = spec.model.gated_layers
            convits.setdefault(key, []).append((column, spec.seed, gated, strength, record.score))
        elif not spec.model.gated_layers and not spec.method:
            vits.setdefault(_setting(spec), []).append((column, spec.seed, record.score))
    found = {}
    for key, runs in convits.items():
        strengths = {strength for *_, strength, _ in runs}
        zero = [(column, seed, 0, at, score) for column, seed, score in vits.get(key[:2], []) for at in strengths]
        found[key] = pd.DataFrame([*runs, *zero], columns=["column", "seed", LAYERS, STRENGTH, "value"])
    return found


def _setting(spec: RunSpec) -> Key:
    setting = spec.model_dump(mode="json", include={"base", "recipe"})
    return spec.dataset.label, json.dumps([spec.model.ungated.model_dump(mode="json"), setting], sort_keys=True)
