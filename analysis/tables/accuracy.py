"""The study's own table: top-1 by row and column, its difference to its base, and the paper's number."""

from __future__ import annotations

from vitinit.analysis.tables.notes import about_runs, beside, compared_with, not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.shared import (
    Values,
    baselines_of,
    contrasts_compared,
    published_numbers,
    values_by_seed,
)
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose


@TABLES.add("", place=1)
def accuracy(asked: Asked) -> Table:
    """Every row and column; see the notes for what is in a cell."""
    from vitinit.analysis.stats import paired, sample

    study = asked.study
    plain = [row for row in study.rows if not study.examples[row, None].method]
    named = {first: second for first, second in study.contrasts if second in plain and not asked.baseline}
    baselines, published = named | baselines_of(study, asked.baseline), published_numbers(study)
    values = values_by_seed(study, asked.metric)
    rows = [row for row in study.rows if row in (asked.rows or study.rows)]
    cells, unknown = {}, []
    for column in study.columns:
        best, apart = _best(rows, column, values, study.lower_is_better)
        unknown += [f"{row} on {column}" for row in apart]
        for row in study.rows:
            ours, theirs = values.get((row, column)), values.get((baselines.get(row, ""), column))
            paper, its = published.get((row, column)), published.get((baselines.get(row, ""), column))
            same = paper and its and (paper.publication, paper.table) == (its.publication, its.table)
            cells[row, column] = TableCell(
                sample(ours),
                paired(ours, theirs) if ours is not None and theirs is not None else None,
                best=row in best,
                published=paper,
                published_difference=paper.value - its.value if paper and its and same else None,
            )
    compared = {row: baselines[row] for (row, _), cell in cells.items() if cell.against}
    notes = []
    if compared:
        which = "same base and model, no method" + "; or what the grid compares it with" * bool(named)
        own = f"the method's own base ({which}: {compared_with(compared)})"
        notes.append(
            f"Difference: by seed, to {asked.baseline or own}, with its 95 % interval (Student's t; none under 3 "
            "common seeds)."
        )
        if study.contrasts:
            tested = f"table {study.name}_contrasts tests them" if contrasts_compared(study) else "none has runs yet"
            notes.append(f"No p: the grid names its comparisons, and {tested}.")
        notes += not_initialisation_alone(study, compared.items())
    elif asked.baseline:
        notes.append(f"No differences: the baseline row {asked.baseline} has no finished run.")
    alone = [row for row in study.rows if study.examples[row, None].method and row not in baselines]
    if alone and not asked.baseline:
        why = "as no row has their base and model without a method"
        notes.append(f"No difference (--baseline ROW gives one), {why}: {', '.join(alone)}.")
    if unknown:
        notes.append(f"Not compared with the best mean, as they share under 3 seeds: {', '.join(unknown)}.")
    notes += [*about_runs(study, cells), *beside(study, cells)]
    return compose(asked, cells, subject(study, asked.metric), notes, baselines=baselines)


def _best(rows: list[str], column: str, values: Values, lower: bool) -> tuple[list[str], list[str]]:
    """The row with the best mean and those that do not differ from it, of rows with three seeds or more.

    And those of which nothing can be said, as fewer than three of their seeds are seeds of the best.
    """
    from vitinit.analysis.stats import LEAST_PAIRS, differences, t_interval

    scores = {row: its for row in rows if (its := values.get((row, column))) is not None and len(its) >= LEAST_PAIRS}
    if len(scores) < 2:
        return [], []
    top = (min if lower else max)(scores, key=lambda row: float(scores[row].mean()))
    intervals = {row: t_interval(differences(its, scores[top])) for row, its in scores.items()}
    return [row for row, its in intervals.items() if its and 0 in its], [
        row for row, its in intervals.items() if not its
    ]
