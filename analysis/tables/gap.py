"""Accuracy by number of training images, and the gap between initialisations: ConViT's Table 2."""

from __future__ import annotations

from collections import defaultdict

from vitinit.analysis.frame import Study
from vitinit.analysis.published import Published, context
from vitinit.analysis.tables.context import beside
from vitinit.analysis.tables.notes import compared_with, quantity
from vitinit.analysis.tables.registry import TABLES, Asked
from vitinit.analysis.tables.shared import (
    Table,
    TableCell,
    Values,
    accuracy_of,
    own_bases,
    published_numbers,
    values_by_seed,
)
from vitinit.analysis.text import capitalised

LEAST_SIZES = 3
"""Sizes of the training set; fewer are no curve."""


def subsets(study: Study) -> list[str]:
    """The columns of datasets of which finished runs saw training sets of several sizes."""
    sizes = defaultdict(set)
    for record in study.contents.done.values():
        sizes[record.spec.dataset.name].add(record.spec.dataset.train_size)
    examples = study.examples
    return [place for place in study.columns if len(sizes[examples[None, place].dataset.name]) >= LEAST_SIZES]


def compared(study: Study) -> bool:
    """Return True if there are gaps between rows over several sizes of the training set."""
    if not subsets(study):
        return False
    finished = set(study.runs["row"])
    return any({row, other} <= finished for row, other in baselines(study, None).items())


def baselines(study: Study, baseline: str | None) -> dict[str, str]:
    """The row that each row's gap is to: this one, or its own base.

    A method whose own base is not in the study (ConViT's would be a ConViT without local initialisation) has its gap to
    the first row without a method, as in ConViT's Table 2, where that is DeiT.
    """
    if baseline:
        return {row: baseline for row in study.rows if row != baseline}
    examples, own = study.examples, own_bases(study)
    first = next((row for row in study.rows if not examples[row, None].method), None)
    found = {row: own.get(row, first) for row in study.rows if examples[row, None].method}
    return {row: other for row, other in found.items() if other}


@TABLES.add("_gap", compared, place=4)
def gap(asked: Asked) -> Table:
    """One line per training set; see the notes for what is in it."""
    from vitinit.analysis.stats import sample

    study, metric = asked.study, asked.metric
    bases = baselines(study, asked.baseline)
    plain = [row for row in study.rows if row not in bases]
    values, published = values_by_seed(study, metric), published_numbers(study)
    cells: dict[tuple[str, str], TableCell] = {}
    lines = {}
    for place in subsets(study):
        label = lines[place] = _label(place, published, study.rows)
        for row in study.rows:
            cells[label, row] = TableCell(sample(values.get((row, place))), published=published.get((row, place)))
            if row in bases:
                cells[label, _gap(row)] = _relative(row, bases[row], place, values, published)
    notes = [
        f"Ours: {quantity(study, metric)}, mean ± sample standard deviation over n seeds.",
        f"Gap: 100 ({study.measured} / {study.measured} of the base − 1), ours by seed, to {compared_with(bases)}. "
        f"Settings, tests and counts: table {study.name}.",
    ]
    result = Table(
        name=asked.name,
        study=study,
        caption=f"{accuracy_of(study)} by number of training images, study {study.name}, and gaps",
        rows=list(lines.values()),
        columns=[*plain, *(column for row in bases for column in (row, _gap(row)))],
        cells=cells,
        published=context(study.name),
        transposed=True,
        shows=f"{capitalised(quantity(study, metric))}, and its gap to the base's in percent of it",
    )
    result.notes.extend([*notes, *beside(result)])
    return result


def _label(place: str, published: dict[tuple[str, str], Published], rows: list[str]) -> str:
    """The column's, with the share of the images that the paper took, where it has the setting."""
    found = [number.setting.train_fraction for row in rows if (number := published.get((row, place)))]
    return f"{place}: {100 * found[0]:g}%" if found and found[0] else place


def _gap(row: str) -> str:
    return f"{row}: gap (%)"


def _relative(
    row: str, base: str, place: str, values: Values, published: dict[tuple[str, str], Published]
) -> TableCell:
    from vitinit.analysis.stats import sample

    gains, paper = [], None
    if (row, place) in values and (base, place) in values:
        # pandas divides by index, that is by seed; a seed that only one side has gives NaN.
        theirs = values[base, place]
        gains = list((100 * (values[row, place] / theirs.where(theirs > 0) - 1)).dropna())
    if (row, place) in published and (base, place) in published:
        paper = 100 * (published[row, place].value / published[base, place].value - 1)
    return TableCell(sample(gains), published_difference=paper, signed=True)
