"""Rows of a study: their values by seed, bases and placebos, and what else differs between two of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pandas as pd

from vitinit.analysis.frame import Study
from vitinit.analysis.published import Published, lookup, read_in_part
from vitinit.benchmark.metrics.registry import MAIN
from vitinit.benchmark.settings import flat
from vitinit.benchmark.spec import InitializerSpec

Key = tuple[str, str]
"""Row and column label."""


def baselines_of(study: Study) -> dict[str, str]:
    """Return the row that each row is compared with: the baseline of the study, or its own base.

    A base, which is a row without a method, is compared with the first one of the same model and recipe.
    """
    if study.baseline:
        return {row: study.baseline for row in study.rows if row != study.baseline}
    bases, plain = own_bases(study), plain_rows(study)
    for row in plain:
        first = next(other for other in plain if _alike(study, row, other, "model", "recipe"))
        if first != row:
            bases[row] = first
    return bases


def mixed_code(study: Study) -> list[str]:
    """Return lines on initialisers, and on differences between rows, whose runs are of several codes or processors."""
    compared = {f"{row} − {base}": [row, base] for row, base in baselines_of(study).items()}
    compared |= {contrast.name: [*contrast.weights] for contrast in study.contrasts}
    return study.note("mixed_code", compared=compared)


def plain_rows(study: Study) -> list[str]:
    """Return the rows without a method."""
    return [row for row in study.rows if not study.examples[row, None].method]


def _alike(study: Study, row: str, other: str, *fields: str) -> bool:
    """Return True if two rows have columns in common, and equal fields of their specs in all of these."""
    places = [place for place in study.columns if {(row, place), (other, place)} <= study.examples.keys()]
    return bool(places) and all(
        getattr(study.examples[row, place], name) == getattr(study.examples[other, place], name)
        for place in places
        for name in fields
    )


@lru_cache(maxsize=64)
def values_by_seed(study: Study, epoch: int = 0) -> Mapping[Key, pd.Series[float]]:
    """Return the scores of the finished runs, by row and column: after an epoch, or (0) those of the study."""
    scores = study.epochs[study.epochs["epoch"] == epoch] if epoch else study.runs
    return {
        (str(row), str(column)): group.set_index("seed")["score"]
        for (row, column), group in scores.groupby(["row", "column"])
    }


def own_bases(study: Study) -> dict[str, str]:
    """Return for each row with a method the row of the same base and model without one.

    Of several with different recipes it is the one that differs from the row in the fewest fields.
    """
    bases, plain = dict[str, str](), plain_rows(study)
    for row in (row for row in study.rows if row not in plain):
        if others := [other for other in plain if _alike(study, row, other, "base", "model")]:
            bases[row] = _nearest(study, row, others)
    return bases


def _nearest(study: Study, row: str, others: list[str]) -> str:
    """Return the row that differs from another one in the fewest fields of its settings; of equals the first."""
    return min(others, key=lambda other: len(differing(study, row, other)))


def placebos(study: Study) -> dict[str, tuple[str, str]]:
    """Return for each placebo the row that it controls, and what it keeps (`own` for those that a grid names).

    A row whose method is `placebo` is of the row with that method over the same base and model.
    """
    of = {row: (other, "own") for row, other in study.layout.placebos.items() if {row, other} <= {*study.rows}}
    methods = {row: spec.method for row in study.rows if (spec := study.examples[row, None]).method}
    for row, method in methods.items():
        if method.name == "placebo":
            method_of = InitializerSpec.model_validate(method.params["of"])
            others = [
                other for other in methods if methods[other] == method_of and _alike(study, row, other, "base", "model")
            ]
            if others:
                of.setdefault(row, (_nearest(study, row, others), method.params["keep"]))
    return of


def differing(study: Study, row: str, other: str) -> dict[str, tuple[str, str]]:
    """Return the fields of model and recipe in which two rows differ, with both values."""
    fields = {}
    for place in study.columns:
        specs = [study.examples.get((label, place)) for label in (row, other)]
        ours, theirs = (flat(spec.model_dump_json(include={"model", "recipe"})) if spec else {} for spec in specs)
        apart = {name for name in ours.keys() & theirs.keys() - {"recipe.name"} if ours[name] != theirs[name]}
        for name in sorted(apart & {"model.arch"} or apart):
            fields[name.partition(".")[2]] = ours[name], theirs[name]
    return fields


def published_numbers(study: Study) -> dict[Key, Published]:
    """Return the numbers published in the setting of a row and column, whatever the state of our run.

    Nothing stands beside a run that read other images than the whole dataset, or scores of another metric.
    """
    done = study.contents.done.values()
    in_part = {(run.row, study.column[run.run_id]) for run in done if read_in_part(run)}
    return {
        (row, column): number
        for (row, column), spec in study.examples.items()
        if row and column and (row, column) not in in_part and all(run.metric in MAIN for run in done)
        if (number := lookup(spec, study.name))
    }
