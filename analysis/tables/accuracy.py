"""The study's own table: top-1 by row and column, its difference to its base, and the paper's number."""

import pandas as pd

from vitinit.analysis.comparison import compare, named
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import baselines_of, mixed_code, own_bases, plain_rows, published_numbers, values_by_seed
from vitinit.analysis.stats import LEAST_PAIRS
from vitinit.analysis.tables.notes import beside, not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose


@TABLES.add("", place=1)
def accuracy(asked: Asked) -> Table:
    """Return the table of all rows and columns."""
    study, values = asked.study, values_by_seed(asked.study)
    plain = plain_rows(study)
    pairs = {first: second for first, second in study.pairs.values() if second in plain}
    baselines, published = baselines_of(study), published_numbers(study)
    if not study.baseline:
        baselines |= pairs | own_bases(study)
    cells = {}
    for column in study.columns:
        best = _best(study, column)
        for row in study.rows:
            ours, theirs = (row, column), (baselines.get(row, ""), column)
            paper, base_paper = published.get(ours), published.get(theirs)
            cells[ours] = TableCell(
                values.get(ours),
                compare(study, (row, theirs[0]), column),
                best=row in best,
                published=paper,
                published_difference=paper.value - base_paper.value
                if paper and base_paper and paper.cited == base_paper.cited
                else None,
            )
    compared = {row: baselines[row] for (row, _), cell in cells.items() if cell.against}
    notes = [
        *study.note(
            "differences", pairs=pairs, named=named(study), plain=plain, compared=compared, baselines=baselines
        ),
        *not_initialisation_alone(study, compared.items()),
        *study.note("runs", cells=cells, mixed_code=mixed_code(study)),
        *study.note("without_numbers"),
        *beside(study, cells),
    ]
    return compose(asked, cells, subject(study), notes, baselines=baselines)


def _best(study: Study, column: str) -> list[str]:
    """Return the best of the rows with three seeds, at the seeds of all, and those that it is not detectably above."""
    values = values_by_seed(study).items()
    scores = {row: scores for (row, place), scores in values if place == column and len(scores) >= LEAST_PAIRS}
    common = pd.DataFrame(scores).dropna()
    if len(scores) < 2 or common.empty:
        return []
    means = {row: float(common[row].mean()) for row in scores}
    top = (min if column in study.lower_is_better else max)(means, key=means.__getitem__)
    return [
        row
        for row, mean in means.items()
        if mean == means[top]
        or ((difference := compare(study, (row, top), column)) and difference.verdict in ("undetected", "above"))
    ]
