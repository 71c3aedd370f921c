"""Parts of all tables: the numbers of a cell, and the rows and values of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.published import Publication, Published, lookup, read_in_part
from vitinit.analysis.text import capitalised
from vitinit.benchmark.metrics.registry import MAIN
from vitinit.benchmark.settings import flat
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import unknown_name

if TYPE_CHECKING:
    import pandas as pd

    from vitinit.analysis.stats import Interval, Paired, Sample

METRICS = {"last": "score", "best": "best_score"}
LEVEL = 0.05
"""Level of the tests: a p that cannot be under it is not shown."""

Key = tuple[str, str]
"""Row and column label."""
Values = Mapping[Key, "pd.Series[float]"]
"""Top-1, or mean IoU, in percent by seed."""


@dataclass(frozen=True)
class TableCell:
    """Our numbers and the paper's for one row and column; None where there is none."""

    ours: Sample | None = None
    against: Paired | None = None
    """Ours minus that of its base, or of the one baseline."""
    p: float | None = None
    """p of `against`, corrected by Holm across the table."""
    least_p: float | None = None
    """Lowest possible `p`: with few seeds, and many comparisons, never under 0.05."""
    pooled: Interval | None = None
    """95 % interval of `against`, with the noise of all rows (`stats.Pooled`)."""
    pooled_p: float | None = None
    """p of `against` by that model, corrected by Holm across the table."""
    detectable: float | None = None
    """Smallest difference that the model's test finds with power 0.8."""
    best: bool = False
    """The best of its column, or not told apart from it: the interval of their difference contains 0."""
    published: Published | None = None
    """In the setting of ours."""
    published_difference: float | None = None
    """In the same published table."""
    signed: bool = False
    """Ours is a difference itself."""
    switch: bool | None = None
    """On or off, in place of any number."""

    @property
    def telling_p(self) -> float | None:
        """`p` where it could be under the level at all."""
        return None if self.least_p is None or self.least_p > LEVEL else self.p

    @property
    def excludes_published(self) -> bool:
        """The interval of our mean does not contain the published number."""
        interval = self.ours.interval if self.ours else None
        return interval is not None and self.published is not None and self.published.value not in interval


@dataclass(frozen=True)
class Table:
    """Everything that any format shows."""

    name: str
    study: Study
    caption: str
    """Its title; `caption` of notes.py has what else stands over a table."""
    rows: list[str]
    columns: list[str]
    cells: dict[Key, TableCell]
    baselines: dict[str, str] = field(default_factory=dict)
    """The row that a row is compared with; a row without one is missing here."""
    comparisons: int = 0
    """Number of comparisons that p is corrected for: all that the study is to make."""
    notes: list[str] = field(default_factory=list)
    baseline: str | None = None
    """The one row that all others are compared with; None: each with its own base."""
    published: tuple[Publication, str] | None = None
    """The paper and its table that this one is to be read with."""
    transposed: bool = False
    """Rows are datasets, columns are initialisations."""
    shows: str = ""
    """Quantity of our numbers, for the caption."""
    gain: str = ""
    """Definition of the differences, for a table that always shows them: `first minus second row`."""
    digits: int = 1
    """Behind the point."""


@dataclass(frozen=True)
class TableLayout:
    """Layout options of a table, as the command line takes them."""

    gain: bool = False
    """Columns of differences, their intervals and p, too."""
    whole: bool = False
    """All notes, too."""


PLAIN = TableLayout()
"""One line a row, as papers print it."""


def usual_seeds(table: Table) -> int | None:
    """Number of seeds of most cells, which these do not state."""
    seeds = Counter(cell.ours.n for cell in table.cells.values() if cell.ours)
    return max(seeds, key=lambda n: (seeds[n], n)) if seeds else None


def accuracy_of(study: Study) -> str:
    """Return the quantity that a table shows, to begin a caption with."""
    known = {"top-1": "Top-1 accuracy", "top-1 or mean IoU": "Top-1 accuracy, or mean IoU,"}
    return known.get(study.measured, capitalised(study.measured))


def baselines_of(study: Study, baseline: str | None) -> dict[str, str]:
    """The row that each row is compared with: this one, or without it the own base."""
    return own_bases(study) if baseline is None else {row: baseline for row in study.rows if row != baseline}


def check_baseline(baseline: str | None, studies: Iterable[Study]) -> None:
    """Raise VitinitError when a baseline is given that is a row of none of these studies."""
    rows = {row: None for study in studies for row in study.rows}
    if baseline is not None and baseline not in rows:
        raise unknown_name("baseline row", baseline, rows)


@lru_cache(maxsize=4)
def values_by_seed(study: Study, metric: str) -> Values:
    """Return the scores of the finished runs, by row and column."""
    groups = study.runs.groupby(["row", "column"])
    return {(str(row), str(column)): group.set_index("seed")[METRICS[metric]] for (row, column), group in groups}


def own_bases(study: Study) -> dict[str, str]:
    """For each row with a method: the row of the same base and model without one, where there is one.

    Of several, with recipes of their own, the first of those whose recipes are most like the row's.
    """
    examples = study.examples
    plain = [row for row in study.rows if not examples[row, None].method]

    def pairs(row: str, other: str) -> list[tuple[RunSpec, RunSpec]]:
        both = [place for place in study.columns if {(row, place), (other, place)} <= examples.keys()]
        return [(examples[row, place], examples[other, place]) for place in both]

    def is_base(row: str, other: str) -> bool:
        them = pairs(row, other)
        return bool(them) and all((a.base, a.model) == (b.base, b.model) for a, b in them)

    found = {}
    for row in study.rows:
        others = [other for other in plain if examples[row, None].method and is_base(row, other)]
        if others:
            found[row] = min(others, key=lambda other: len(differing(study, row, other)))
    return found


def differing(study: Study, row: str, other: str) -> dict[str, tuple[str, str]]:
    """The fields of model and recipe in which two rows differ, with the values of both."""
    found: dict[str, tuple[str, str]] = {}
    for place in study.columns:
        if not {(row, place), (other, place)} <= study.examples.keys():
            continue
        ours, theirs = (
            flat(study.examples[each, place].model_dump_json(include={"model", "recipe"})) for each in (row, other)
        )
        arch = "model.arch"
        apart = {arch} if ours[arch] != theirs[arch] else ours.keys() & theirs.keys() - {"recipe.name"}
        for name in sorted(apart):
            if ours[name] != theirs[name]:
                found[name.partition(".")[2]] = ours[name], theirs[name]
    return found


def contrasts_compared(study: Study) -> bool:
    """Return True if any contrast of the grid has two finished runs of one seed."""
    if not study.contrasts:
        return False
    seeds = {key: set(values.index) for key, values in values_by_seed(study, "last").items()}
    return any(
        seeds.get((ours, column), set()) & seeds.get((theirs, column), set())
        for ours, theirs in study.contrasts
        for column in study.columns
    )


def skipped(study: Study) -> set[Key]:
    """The rows and columns that could not start."""
    return {(run.row, study.column[run.run_id]) for run in study.contents.skipped.values()}


def published_numbers(study: Study) -> dict[Key, Published]:
    """Return the numbers published in the setting of a row and column, whatever the state of our run.

    Nothing stands beside a run that read other images than the whole dataset, or scores of another metric.
    """
    if any(run.metric not in MAIN for run in study.contents.done.values()):
        return {}
    in_part = {(run.row, study.column[run.run_id]) for run in study.contents.done.values() if read_in_part(run)}
    found = {}
    for (row, column), spec in study.examples.items():
        number = lookup(spec, study.name) if row is not None and column is not None else None
        if number and (row, column) not in in_part:
            found[str(row), str(column)] = number
    return found
