"""Rows of a study: their values by seed, bases and placebos, and what else differs between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import pandas as pd

from vitinit.analysis.frame import Study
from vitinit.analysis.published import Published, lookup, read_in_part
from vitinit.benchmark.metrics.registry import MAIN
from vitinit.benchmark.settings import flat
from vitinit.initializers.errors import unknown_name

Key = tuple[str, str]
"""Row and column label."""


def baselines_of(study: Study, baseline: str | None) -> dict[str, str]:
    """The row that each row is compared with: this one, or without it its own base."""
    return own_bases(study) if baseline is None else {row: baseline for row in study.rows if row != baseline}


def check_baseline(baseline: str | None, studies: Iterable[Study]) -> None:
    """Raise VitinitError when a baseline is given that is a row of none of these studies."""
    rows = {row: None for study in studies for row in study.rows}
    if baseline is not None and baseline not in rows:
        raise unknown_name("baseline row", baseline, rows)


@lru_cache(maxsize=16)
def values_by_seed(study: Study, epoch: int = 0) -> Mapping[Key, pd.Series[float]]:
    """Return the scores of the finished runs, by row and column: after an epoch, or (0) those of the study."""
    scores = study.epochs[study.epochs["epoch"] == epoch] if epoch else study.runs
    groups = scores.groupby(["row", "column"])
    return {(str(row), str(column)): group.set_index("seed")["score"] for (row, column), group in groups}


def own_bases(study: Study) -> dict[str, str]:
    """For each row with a method: the row of the same base and model without one, where there is one.

    Of several, with recipes of their own, the first of those whose recipes are most like the row's.
    """
    starts, found = {key: (spec.base, spec.model) for key, spec in study.examples.items()}, {}
    plain = [row for row in study.rows if not study.examples[row, None].method]
    for row in (row for row in study.rows if row not in plain):
        others = []
        for other in plain:
            places = [place for place in study.columns if {(row, place), (other, place)} <= starts.keys()]
            if places and all(starts[row, place] == starts[other, place] for place in places):
                others.append(other)
        if others:
            found[row] = min(others, key=lambda other: len(differing(study, row, other)))
    return found


def placebos(study: Study) -> dict[str, tuple[str, str]]:
    """Return for each placebo the row that it is of, over the same base and model, and the property that it keeps."""
    specs = {row: study.examples[row, None] for row in study.rows}
    return {
        row: (other, spec.method.params["keep"])
        for row, spec in specs.items()
        if spec.method and spec.method.name == "placebo"
        for other, its in specs.items()
        if its.method and spec.method.params["of"] == {"name": its.method.name, **its.method.params}
        if (its.base, its.model) == (spec.base, spec.model)
    }


def differing(study: Study, row: str, other: str) -> dict[str, tuple[str, str]]:
    """The fields of model and recipe in which two rows differ, with the values of both."""
    found: dict[str, tuple[str, str]] = {}
    for place in study.columns:
        specs = [study.examples.get((each, place)) for each in (row, other)]
        ours, theirs = (flat(spec.model_dump_json(include={"model", "recipe"})) if spec else {} for spec in specs)
        apart = {name for name in ours.keys() & theirs.keys() - {"recipe.name"} if ours[name] != theirs[name]}
        for name in sorted(apart & {"model.arch"} or apart):
            found[name.partition(".")[2]] = ours[name], theirs[name]
    return found


def skipped(study: Study) -> set[Key]:
    """The rows and columns that could not start."""
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
