"""The study's own table: top-1 by row and column, its difference to its base, and the paper's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis import gains
from vitinit.analysis.tables.notes import about_runs, beside, compared_with, not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.shared import baselines_of, published_numbers, values_by_seed
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose

if TYPE_CHECKING:
    import pandas as pd


@TABLES.add("", place=1)
def accuracy(asked: Asked) -> Table:
    """Every row and column; see the notes for what is in a cell."""
    from vitinit.analysis.stats import sample

    study, values = asked.study, values_by_seed(asked.study, asked.metric)
    plain = [row for row in study.rows if not study.examples[row, None].method]
    named = {first: second for first, second in study.contrasts if second in plain and not asked.baseline}
    baselines, published = named | baselines_of(study, asked.baseline), published_numbers(study)
    cells = {}
    for column in study.columns:
        found = {row: values[row, column] for row in study.rows if (row, column) in values}
        best = _best(found, study.lower_is_better)
        for row in study.rows:
            ours, theirs = (row, column), (baselines.get(row, ""), column)
            paper, its = published.get(ours), published.get(theirs)
            same = paper and its and (paper.publication, paper.table) == (its.publication, its.table)
            cells[ours] = TableCell(
                sample(values.get(ours)),
                gains.compare(values.get(ours), values.get(theirs)),
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
            tested = gains.contrasts(study).tested
            where = f"table {study.name}_contrasts tests them" if tested else "none has runs yet"
            notes.append(f"No p: the grid names its comparisons, and {where}.")
        notes += not_initialisation_alone(study, compared.items())
    alone = [row for row in study.rows if row not in (*plain, *baselines)]
    if alone:
        why = "No difference (--baseline ROW gives one), as no row has their base and model without a method"
        notes.append(f"{why}: {', '.join(alone)}.")
    notes += about_runs(study, cells) + beside(study, cells)
    return compose(asked, cells, subject(study, asked.metric), notes, baselines=baselines)


def _best(values: dict[str, pd.Series[float]], lower: bool) -> list[str]:
    """Return the best of the rows with three seeds, and those without a detectable difference from it."""
    from vitinit.analysis.stats import LEAST_PAIRS, differences, t_interval

    scores = {row: its for row, its in values.items() if len(its) >= LEAST_PAIRS}
    if len(scores) < 2:
        return []
    top = (min if lower else max)(scores.values(), key=lambda its: float(its.mean()))
    intervals = {row: t_interval(differences(its, top)) for row, its in scores.items()}
    return [row for row, interval in intervals.items() if interval and 0 in interval]
