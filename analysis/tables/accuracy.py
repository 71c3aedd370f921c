"""The study's own table: top-1 by row and column, its difference to its base, and the paper's number."""

from __future__ import annotations

from vitinit.analysis.comparison import compare, named
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import baselines_of, published_numbers, values_by_seed
from vitinit.analysis.stats import LEAST_PAIRS
from vitinit.analysis.tables.notes import about_runs, beside, not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.render import template
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose


@TABLES.add("", place=1)
def accuracy(asked: Asked) -> Table:
    """Every row and column; see the notes for what is in a cell."""
    study, values = asked.study, values_by_seed(asked.study)
    plain = [row for row in study.rows if not study.examples[row, None].method]
    pairs = {first: second for first, second in study.pairs.values() if second in plain and not asked.baseline}
    baselines, published = pairs | baselines_of(study, asked.baseline), published_numbers(study)
    cells = {}
    for column in study.columns:
        best = _best(study, column)
        for row in study.rows:
            ours, theirs = (row, column), (baselines.get(row, ""), column)
            paper, its = published.get(ours), published.get(theirs)
            same = paper and its and (paper.publication, paper.table) == (its.publication, its.table)
            cells[ours] = TableCell(
                values.get(ours),
                compare(study, (row, theirs[0]), column),
                best=row in best,
                published=paper,
                published_difference=paper.value - its.value if paper and its and same else None,
            )
    compared = {row: baselines[row] for (row, _), cell in cells.items() if cell.against}
    text = template(
        "differences.txt.j2",
        study=study,
        baseline=asked.baseline,
        pairs=pairs,
        named=named(study),
        plain=plain,
        compared=compared,
        baselines=baselines,
    )
    alone = not_initialisation_alone(study, compared.items())
    notes = [*text.splitlines(), *alone, *about_runs(study, cells), *beside(study, cells)]
    return compose(asked, cells, subject(study), notes, baselines=baselines)


def _best(study: Study, column: str) -> list[str]:
    """Return the best of the rows with three seeds, and those without a detectable difference from it."""
    values = values_by_seed(study)
    means = {
        row: float(its.mean()) for (row, place), its in values.items() if place == column and len(its) >= LEAST_PAIRS
    }
    if len(means) < 2:
        return []
    top = (min if study.lower_is_better else max)(means, key=means.__getitem__)
    differences = {row: compare(study, (row, top), column) for row in means if row != top}
    return [top, *(row for row, its in differences.items() if its and its.verdict == "undetected")]
