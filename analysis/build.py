"""From the records of a study to a table of numbers: each cell ours, its difference to a baseline, and the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from analysis.frame import Study
from analysis.published import PublishedCell, lookup
from analysis.text import one_line
from benchmark.spec import RunSpec
from initializers.errors import unknown_name

if TYPE_CHECKING:
    import pandas as pd

    from analysis.stats import Estimate, Paired, Sample

BASELINE = "Trunc normal"
METRICS = {"last": "top1", "best": "best_top1"}
BY_BASE = "_by_base"
"""Ends the name of a study's second table, in which each method stands against its own base."""

GAP = "_gap"
"""Ends the name of the table by number of training images: how far each row is from the baseline, relative to it."""
SWITCHES = "_switches"
"""Ends the name of the table of what is switched on in each ConViT."""
MASKED = "_masked"
"""Ends the name of the table of what trained ConViTs can do without a term of attention."""

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
    """Ours minus the baseline's."""
    p: float | None = None
    """Of `against`, corrected by Holm across the table."""
    least_p: float | None = None
    """How low `p` could be, whatever the numbers: with few seeds, and many comparisons, never under 0.05."""
    best: bool = False
    """The best of its column, or not told apart from it: the interval of their difference contains 0."""
    published: PublishedCell | None = None
    published_difference: float | None = None
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
    """Probability that a run of this row is better than one of its baseline's."""
    published: PublishedCell | None


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
    together: list[str]
    """The columns that `across` goes over: those with three seeds of any row."""
    across: dict[str, Across]
    """Rows with three seeds in each of these columns; empty where they are fewer than two."""
    notes: list[str] = field(default_factory=list)

    @property
    def by_base(self) -> bool:
        """Each method stands against its own base."""
        return self.name == self.study.name + BY_BASE

    @property
    def transposed(self) -> bool:
        """Rows are datasets, columns are initialisations."""
        return self.name == self.study.name + GAP

    def starts_group(self, row: str) -> bool:
        """A base, which its methods follow."""
        return self.by_base and row not in self.baselines


def names(study: Study) -> list[str]:
    """The tables that the records allow.

    The study's own; methods against their bases, where that is another row than the study's baseline; gaps by number of
    training images, where there are three or more of them; the switches of ConViT, where any is off; what trained
    ConViTs can do without a term of attention, where that was tested; and what the initialisations do and cost, where
    any of them has targets to come close to.
    """
    from analysis.gap import subsets
    from analysis.masking import left_out
    from analysis.switches import switched

    own, default = own_bases(study), default_baseline(study)
    finished = set(study.runs["row"]) if study.contents.done else set()
    aims = any(record.init.pseudo_input for record in study.contents.done.values())
    found = {
        study.name: bool(finished),
        study.name + BY_BASE: own != _baselines(study, default) and any({a, b} <= finished for a, b in own.items()),
        study.name + GAP: bool(subsets(study)) and default in finished,
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
        baseline: Row label that differences are to, in the study's own table and in that of gaps. Default: "Trunc
            normal", or without that row the first one without a method; no differences without either.

    Raises:
        VitinitError: no finished run, or no row of that name.
    """
    from analysis import gap, initialization, masking, switches
    from analysis.notes import notes

    study.require_runs()
    check_baseline(baseline, [study])
    name = name or study.name
    if name == study.name + INITIALIZATION:
        return initialization.describe(study)
    if name == study.name + GAP:
        return gap.describe(study, metric, baseline or default_baseline(study))
    if name == study.name + SWITCHES:
        return switches.describe(study, metric)
    if name == study.name + MASKED:
        return masking.describe(study)
    if name == study.name:
        rows, baseline = study.rows, baseline or default_baseline(study)
        baselines = _baselines(study, baseline)
        title = f"Top-1 accuracy by initialisation, study {study.name}: ours beside the published numbers."
    else:
        baselines = own_bases(study)
        bases = dict.fromkeys(base for base in study.rows if base in baselines.values())
        rows = [row for base in bases for row in (base, *(r for r in study.rows if baselines.get(r) == base))]
        title = f"Top-1 accuracy, study {study.name}: each method against its own base without a method."
    values = {key: found for key, found in values_by_seed(study, metric).items() if key[0] in rows}
    cells = _cells(study, rows, baselines, values)
    together = [c for c in study.columns if any(len(values.get((row, c), ())) >= 3 for row in rows)]
    across = _across(study, rows, baselines, values, together) if len(together) > 1 else {}
    table = Table(name, study, one_line(title), rows, study.columns, baselines, cells, together, across)
    table.notes.extend(notes(table, metric, baseline if name == study.name else None))
    return table


def _baselines(study: Study, baseline: str) -> dict[str, str]:
    """One row for all others, where it is there."""
    return {row: baseline for row in study.rows if row != baseline} if baseline in study.rows else {}


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
    """For each row with a method: the row of the same base and model without one, where there is one."""
    examples = example_specs(study)

    def is_base(other: str, row: str) -> bool:
        pairs = [
            (examples[row, column], examples[other, column])
            for column in study.columns
            if (row, column) in examples and (other, column) in examples
        ]
        return bool(pairs) and all(
            ours.method and not theirs.method and (ours.base, ours.model) == (theirs.base, theirs.model)
            for ours, theirs in pairs
        )

    found = {row: [other for other in study.rows if is_base(other, row)] for row in study.rows}
    return {row: others[0] for row, others in found.items() if others}


def default_baseline(study: Study) -> str:
    """The row that differences are to where none is asked for; it need not be there."""
    plain = {outcome.row for outcome in study.outcomes if not outcome.spec.method}
    return next((row for row in (BASELINE, *study.rows) if row in plain), BASELINE)


def _cells(study: Study, rows: list[str], baselines: dict[str, str], values: Values) -> dict[Key, Cell]:
    from analysis.stats import holm, paired, sample

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
    examples = example_specs(study)
    published = {key: published_cell(study, examples, *key) for key in keys}
    cells = {}
    for key in keys:
        here, theirs = published[key], published.get((baselines.get(key[0], ""), key[1]))
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


def _across(
    study: Study, rows: list[str], baselines: dict[str, str], values: Values, columns: list[str]
) -> dict[str, Across]:
    from analysis.stats import LEAST_PAIRS, aggregate_iqm, floats, probability_of_improvement

    arrays = {
        row: [floats(values[row, column]) for column in columns]
        for row in rows
        if all(len(values.get((row, column), ())) >= LEAST_PAIRS for column in columns)
    }
    examples = example_specs(study)
    result = {}
    for row, by_column in arrays.items():
        theirs = arrays.get(baselines.get(row, ""))
        result[row] = Across(
            mean=sum(float(x.mean()) for x in by_column) / len(by_column),
            iqm=aggregate_iqm(by_column),
            better=probability_of_improvement(by_column, theirs) if theirs else None,
            published=lookup(examples[row, None], study.name, average=True),
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


def published_cell(
    study: Study, examples: dict[tuple[str | None, str | None], RunSpec], row: str, column: str
) -> PublishedCell | None:
    """The paper's cell; it depends on what the row and the column are, not on whether their run is there."""
    spec, dataset = examples.get((row, column)), examples[None, column].dataset
    if spec is None:
        if column != dataset.label:  # one of several settings: which one the row would have there is not known
            return None
        spec = examples[row, None].model_copy(update={"dataset": dataset})
    return lookup(spec, study.name)
