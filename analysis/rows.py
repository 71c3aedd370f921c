"""Rows of a study: their values by seed, bases and placebos, and what else differs between two of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pandas as pd

from vitinit.analysis.frame import Study
from vitinit.analysis.published import Published, lookup, read_in_part
from vitinit.benchmark.metrics.registry import MAIN
from vitinit.benchmark.settings import flat

Key = tuple[str, str]
"""Row and column label."""


def baselines_of(study: Study) -> dict[str, str]:
    """Return the row that each row is compared with: the baseline of the study, or its own base.

    A base, which is a row without a method, is compared with the first one of the same model and recipe.
    """
    if study.baseline:
        return {row: study.baseline for row in study.rows if row != study.baseline}
    first, bases = dict[str, str](), own_bases(study)
    for row in study.rows:
        spec = study.examples[row, None]
        if not spec.method:
            base = first.setdefault(spec.model_dump_json(include={"model", "recipe"}), row)
            bases |= {row: base} if base != row else {}
    return bases


@lru_cache(maxsize=64)
def values_by_seed(study: Study, epoch: int = 0) -> Mapping[Key, pd.Series[float]]:
    """Return the scores of the finished runs, by row and column: after an epoch, or (0) those of the study."""
    scores = study.epochs[study.epochs["epoch"] == epoch] if epoch else study.runs
    groups = scores.groupby(["row", "column"])
    return {(str(row), str(column)): group.set_index("seed")["score"] for (row, column), group in groups}


def own_bases(study: Study) -> dict[str, str]:
    """Return for each row with a method the row of the same base and model without one.

    Of several with different recipes it is the one that differs from the row in the fewest fields.
    """
    starts, bases = {key: (spec.base, spec.model) for key, spec in study.examples.items()}, {}
    plain = [row for row in study.rows if not study.examples[row, None].method]
    for row in (row for row in study.rows if row not in plain):
        others = []
        for other in plain:
            places = [place for place in study.columns if {(row, place), (other, place)} <= starts.keys()]
            if places and all(starts[row, place] == starts[other, place] for place in places):
                others.append(other)
        if others:
            bases[row] = min(others, key=lambda other: len(differing(study, row, other)))
    return bases


def placebos(study: Study) -> dict[str, tuple[str, str]]:
    """Return for each placebo the row that it is of, over the same base and model, and the property that it keeps."""
    specs = {row: study.examples[row, None] for row in study.rows}
    return {
        row: (other, spec.method.params["keep"])
        for row, spec in specs.items()
        if spec.method and spec.method.name == "placebo"
        for other, candidate in specs.items()
        if candidate.method and spec.method.params["of"] == {"name": candidate.method.name, **candidate.method.params}
        if (candidate.base, candidate.model) == (spec.base, spec.model)
    }


def differing(study: Study, row: str, other: str) -> dict[str, tuple[str, str]]:
    """Return the fields of model and recipe in which two rows differ, with both values."""
    fields: dict[str, tuple[str, str]] = {}
    for place in study.columns:
        specs = [study.examples.get((label, place)) for label in (row, other)]
        ours, theirs = (flat(spec.model_dump_json(include={"model", "recipe"})) if spec else {} for spec in specs)
        apart = {name for name in ours.keys() & theirs.keys() - {"recipe.name"} if ours[name] != theirs[name]}
        for name in sorted(apart & {"model.arch"} or apart):
            fields[name.partition(".")[2]] = ours[name], theirs[name]
    return fields


def skipped(study: Study) -> set[Key]:
    """Return the rows and columns that were skipped."""
    return {(run.row, study.column[run.run_id]) for run in study.contents.skipped.values()}


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
