"""From the records of a study to a table of numbers: each cell ours, its difference to its base, and the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from analysis.frame import Study
from analysis.published import Published, lookup
from analysis.text import one_line
from benchmark.spec import RunSpec
from initializers.errors import unknown_name

if TYPE_CHECKING:
    import pandas as pd

    from analysis.stats import Estimate, Paired, Sample

METRICS = {"last": "top1", "best": "best_top1"}
GAP = "_gap"
"""Ends the name of the table by number of training images: how far each row is from its base, relative to it."""
SWITCHES = "_switches"
"""Ends the name of the table of what is switched on in each ConViT."""
MASKED = "_masked"
"""Ends the name of the table of what trained ConViTs can do without a term of attention."""

CONTRASTS = "_contrasts"
"""Ends the name of the table of the comparisons that the grid names."""

INITIALIZATION = "_initialization"
"""Ends the name of the table of what a study's initialisations do and cost."""

LEVEL = 0.05
"""Of the tests: a p that cannot be under it is not shown."""

Key = tuple[str, str]
"""Row and column label."""
Values = Mapping[Key, "pd.Series[float]"]
"""Top-1 in percent by seed."""


@dataclass(frozen=True)
class Cell:
    """Our numbers and the paper's for one row and column; None where there is none."""

    ours: Sample | None = None
    against: Paired | None = None
    """Ours minus that of its base, or of the one baseline."""
    p: float | None = None
    """Of `against`, corrected by Holm across the table."""
    least_p: float | None = None
    """How low `p` could be, whatever the numbers: with few seeds, and many comparisons, never under 0.05."""
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
    def excludes_published(self) -> bool:
        """The interval of our mean does not contain the published number."""
        interval = self.ours.interval if self.ours else None
        return interval is not None and self.published is not None and self.published.value not in interval


@dataclass(frozen=True)
class Across:
    """A row over several columns of the table."""

    mean: float
    """Of the columns' means."""
    iqm: Estimate
    better: Estimate | None
    """Probability that a run of this row is better than one of its base's, or of the one baseline's."""


@dataclass(frozen=True)
class Table:
    """Everything that any format shows."""

    name: str
    study: Study
    caption: str
    rows: list[str]
    columns: list[str]
    baselines: dict[str, str]
    """The row that a row is compared with; a row without one is missing here."""
    cells: dict[Key, Cell]
    together: list[str] = field(default_factory=list)
    """The columns that `across` goes over: those with three seeds of any row."""
    across: dict[str, Across] = field(default_factory=dict)
    """Rows with three seeds in each of these columns; empty where they are fewer than two."""
    notes: list[str] = field(default_factory=list)
    baseline: str | None = None
    """The one row that all others are compared with; None: each with its own base."""

    @property
    def transposed(self) -> bool:
        """Rows are datasets, columns are initialisations."""
        return self.name == self.study.name + GAP


def names(study: Study) -> list[str]:
    """The tables that the records allow.

    The study's own; the comparisons that its grid names; gaps by number of training images, where there are three or
    more of them; the switches of ConViT, where any is off; what trained ConViTs can do without a term of attention,
    where that was tested; and what the initialisations do and cost, where any of them has targets to come close to.
    """
    from analysis.tables import contrasts, gap
    from analysis.tables.masking import left_out
    from analysis.tables.switches import switched

    aims = any(record.init.pseudo_input for record in study.contents.done.values())
    found = {
        study.name: bool(study.contents.done),
        study.name + CONTRASTS: contrasts.compared(study),
        study.name + GAP: gap.compared(study),
        study.name + SWITCHES: switched(study),
        study.name + MASKED: left_out(study),
        study.name + INITIALIZATION: aims,
    }
    return [name for name, there in found.items() if there]


def build(study: Study, name: str | None = None, metric: str = "last", baseline: str | None = None) -> Table:
    """Compute one of a study's tables.

    Args:
        study: The records.
        name: One of `names`. Default: the study's own.
        metric: `last` or `best` epoch.
        baseline: Row label that differences are to, in the study's own table and in that of gaps. Default: each row's
            own base (see `own_bases`).

    Raises:
        VitinitError: no finished run, or no row of that name.
    """
    from analysis.tables import contrasts, gap, initialization, masking, switches
    from analysis.tables.notes import notes

    study.require_runs()
    check_baseline(baseline, [study])
    name = name or study.name
    if name == study.name + INITIALIZATION:
        return initialization.describe(study)
    if name == study.name + CONTRASTS:
        return contrasts.describe(study, metric)
    if name == study.name + GAP:
        return gap.describe(study, metric, baseline)
    if name == study.name + SWITCHES:
        return switches.describe(study, metric)
    if name == study.name + MASKED:
        return masking.describe(study)
    baselines = baselines_of(study, baseline)
    values = values_by_seed(study, metric)
    together = [c for c in _of_one_split(study) if any(len(values.get((row, c), ())) >= 3 for row in study.rows)]
    table = Table(
        name=name,
        study=study,
        caption=one_line(f"Top-1 accuracy by initialisation, study {study.name}."),
        rows=study.rows,
        columns=study.columns,
        baselines=baselines,
        cells=_cells(study, baselines, values),
        together=together,
        across=_across(study.rows, baselines, values, together) if len(together) > 1 else {},
        baseline=baseline,
    )
    table.notes.extend(notes(table, metric))
    return table


def baselines_of(study: Study, baseline: str | None) -> dict[str, str]:
    """The row that each row is compared with: this one, or without it the own base."""
    return own_bases(study) if baseline is None else {row: baseline for row in study.rows if row != baseline}


def check_baseline(baseline: str | None, studies: Iterable[Study]) -> None:
    """Raise VitinitError when a baseline is given that is a row of none of these studies."""
    rows = {row: None for study in studies for row in study.rows}
    if baseline is not None and baseline not in rows:
        raise unknown_name("baseline row", baseline, rows)


def values_by_seed(study: Study, metric: str) -> Values:
    """Top-1 of the finished runs, by row and column."""
    groups = study.runs.groupby(["row", "column"])
    return {(str(row), str(column)): group.set_index("seed")[METRICS[metric]] for (row, column), group in groups}


def own_bases(study: Study) -> dict[str, str]:
    """For each row with a method: the row of the same base and model without one, where there is one.

    Of several, with recipes of their own, the first that has the row's recipe, otherwise the first.
    """
    examples = example_specs(study)
    plain = [row for row in study.rows if not examples[row, None].method]

    def pairs(row: str, other: str) -> list[tuple[RunSpec, RunSpec]]:
        both = [place for place in study.columns if {(row, place), (other, place)} <= examples.keys()]
        return [(examples[row, place], examples[other, place]) for place in both]

    def is_base(row: str, other: str) -> bool:
        them = pairs(row, other)
        return bool(them) and all((a.base, a.model) == (b.base, b.model) for a, b in them)

    def recipes_differ(row: str, other: str) -> bool:
        return any(a.recipe != b.recipe for a, b in pairs(row, other))

    found = {}
    for row in study.rows:
        others = [other for other in plain if examples[row, None].method and is_base(row, other)]
        if others:
            found[row] = min(others, key=lambda other: recipes_differ(row, other))
    return found


def _cells(study: Study, baselines: dict[str, str], values: Values) -> dict[Key, Cell]:
    from analysis.stats import holm, paired, sample

    rows = study.rows
    keys = [(row, column) for column in study.columns for row in rows]
    against = {
        key: paired(values[key], values[other])
        for key in keys
        if key in values and (other := (baselines.get(key[0], ""), key[1])) in values
    }
    tested = {key: pair.p for key, pair in against.items() if pair and pair.p is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    # what is corrected rises with each p that goes into it
    least = dict(
        zip(tested, holm([pair.least_p for key, pair in against.items() if pair and key in tested]), strict=True)
    )
    best = {place for column in study.columns for place in _best(rows, column, values)}
    published = published_numbers(study)
    cells = {}
    for key in keys:
        here, theirs = published.get(key), published.get((baselines.get(key[0], ""), key[1]))
        if here and theirs and (here.publication is not theirs.publication or here.table != theirs.table):
            theirs = None
        cells[key] = Cell(
            ours=sample(values[key]) if key in values else None,
            against=against.get(key),
            p=corrected.get(key),
            least_p=least.get(key),
            best=key in best,
            published=here,
            published_difference=here.value - theirs.value if here and theirs else None,
        )
    return cells


def _best(rows: list[str], column: str, values: Values) -> list[Key]:
    """The row with the highest mean and those not told apart from it, of rows with three seeds or more."""
    from analysis.stats import LEAST_PAIRS, differences, t_interval

    keys = [(row, column) for row in rows if len(values.get((row, column), ())) >= LEAST_PAIRS]
    if len(keys) < 2:
        return []
    top = max(keys, key=lambda key: float(values[key].mean()))
    intervals = {key: t_interval(differences(values[key], values[top])) for key in keys}
    return [key for key, interval in intervals.items() if interval and 0 in interval]


def _of_one_split(study: Study) -> list[str]:
    """The columns that were measured on test images, or where there are none all of them."""
    test = set(study.runs.loc[study.runs["split"] == "test", "column"])
    return [column for column in study.columns if column in test or not test]


def _across(rows: list[str], baselines: dict[str, str], values: Values, columns: list[str]) -> dict[str, Across]:
    from analysis.stats import LEAST_PAIRS, aggregate_iqm, floats, probability_of_improvement

    arrays = {
        row: [floats(values[row, column]) for column in columns]
        for row in rows
        if all(len(values.get((row, column), ())) >= LEAST_PAIRS for column in columns)
    }
    result = {}
    for row, by_column in arrays.items():
        theirs = arrays.get(baselines.get(row, ""))
        result[row] = Across(
            mean=sum(float(x.mean()) for x in by_column) / len(by_column),
            iqm=aggregate_iqm(by_column),
            better=probability_of_improvement(by_column, theirs) if theirs else None,
        )
    return result


def example_specs(study: Study) -> dict[tuple[str | None, str | None], RunSpec]:
    """The first run's spec by row and column, by row alone (with column None) and by column alone (with row None)."""
    examples: dict[tuple[str | None, str | None], RunSpec] = {}
    for outcome in study.outcomes:
        row, column = outcome.row, study.column[outcome.run_id]
        for key in ((row, column), (row, None), (None, column)):
            examples.setdefault(key, outcome.spec)
    return examples


def published_numbers(study: Study) -> dict[Key, Published]:
    """What was published in the setting of a row and column, whether our run of it is finished, failed or skipped."""
    found = {}
    for (row, column), spec in example_specs(study).items():
        number = lookup(spec, study.name) if row is not None and column is not None else None
        if number:
            found[str(row), str(column)] = number
    return found
