"""Switches of each ConViT of a study, beside the accuracy that they lead to: ConViT's Table 3."""

from __future__ import annotations

from vitinit.analysis.frame import Study
from vitinit.analysis.published import context
from vitinit.analysis.tables.context import beside
from vitinit.analysis.tables.notes import quantity
from vitinit.analysis.tables.registry import TABLES, Asked
from vitinit.analysis.tables.shared import Table, TableCell, accuracy_of, published_numbers, values_by_seed
from vitinit.analysis.text import capitalised
from vitinit.benchmark.spec import RunSpec

METHOD = "convit_gpsa"
PARAMETERS = {"train gating": "train_gating", "conv init": "conv_init", "train GPSA": "train_gpsa"}
"""By label; each is on unless a record says otherwise."""
GATED = "use GPSA"


def switched(study: Study) -> bool:
    """Return True if a finished run has any of them off."""
    methods = [record.spec.method for record in study.contents.done.values()]
    return any(
        method.params.get(name) is False
        for method in methods
        if method and method.name == METHOD
        for name in PARAMETERS.values()
    )


@TABLES.add("_switches", switched, place=5)
def switches(asked: Asked) -> Table:
    """The table; see its notes for what is in it."""
    from vitinit.analysis.stats import sample

    study, metric = asked.study, asked.metric
    examples, values, published = study.examples, values_by_seed(study, metric), published_numbers(study)
    cells: dict[tuple[str, str], TableCell] = {}
    rows = [row for row in study.rows if not _is_placebo(examples[row, None])]
    for row in rows:
        spec = examples[row, None]
        gated = spec.model.gated_layers > 0
        params = spec.method.params if spec.method and spec.method.name == METHOD else {"conv_init": False}
        for label, name in PARAMETERS.items():
            cells[row, label] = TableCell(switch=gated and bool(params.get(name, True)))
        cells[row, GATED] = TableCell(switch=gated)
        for place in study.columns:
            cells[row, place] = TableCell(sample(values.get((row, place))), published=published.get((row, place)))
    notes = [
        f"Ours: {quantity(study, metric)}, mean ± sample standard deviation over n seeds. "
        f"Settings, differences, tests and counts: table {study.name}.",
        "Without train gating the gates stay as they start; without conv init W_v and positional attention start as "
        "the base has them; without train GPSA all attention of the GPSA layers stays as it starts; without use GPSA "
        f"there are no such layers.{' Placebos are left out.' if len(rows) < len(study.rows) else ''}",
    ]
    result = Table(
        name=asked.name,
        study=study,
        caption=f"{accuracy_of(study)} by what of ConViT is switched on, study {study.name}",
        rows=rows,
        columns=[*PARAMETERS, GATED, *study.columns],
        cells=cells,
        published=context(study.name),
        shows=capitalised(quantity(study, metric)),
    )
    result.notes.extend([*notes, *beside(result)])
    return result


def _is_placebo(spec: RunSpec) -> bool:
    """Check for a placebo of ConViT's start, which is neither on nor off."""
    method = spec.method
    return method is not None and method.name == "placebo" and method.params["of"]["name"] == METHOD
