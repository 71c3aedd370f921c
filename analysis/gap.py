"""Accuracy by number of training images, and the gap between initialisations: ConViT's Table 2."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from analysis.build import GAP, Cell, Table, example_specs, published_cell, values_by_seed
from analysis.frame import Study
from analysis.notes import METRICS, source
from analysis.published import PublishedCell, fractions
from analysis.text import one_line

if TYPE_CHECKING:
    import pandas as pd

LEAST_SIZES = 3
"""Sizes of the training set; fewer are no curve."""

Published = dict[str, PublishedCell]
"""By row of the study; numbers of a known fraction of the images only."""
Ours = dict[str, "pd.Series[float]"]
"""By row of the study, then by seed."""


def subsets(study: Study) -> list[str]:
    """The columns of datasets of which finished runs saw training sets of several sizes."""
    sizes = defaultdict(set)
    for record in study.contents.done.values():
        sizes[record.spec.dataset.name].add(record.spec.dataset.train_size)
    examples = example_specs(study)
    return [place for place in study.columns if len(sizes[examples[None, place].dataset.name]) >= LEAST_SIZES]


def describe(study: Study, metric: str, baseline: str) -> Table:
    """One line a training set: ours, then the paper's that none of ours is; see the notes for what is in it."""
    lines = _lines(study, metric)
    # The rows that the paper has stand first, as its table has them.
    known = {row for _, published in lines.values() for row in published}
    others = sorted((row for row in study.rows if row != baseline), key=lambda row: row not in known)
    cells: dict[tuple[str, str], Cell] = {}
    for label, (ours, published) in lines.items():
        for row in (baseline, *others):
            cells[label, row] = _accuracy(row, ours, published)
            if row != baseline:
                cells[label, _gap(row)] = _relative(row, baseline, ours, published)
    notes = [
        f"Ours: {METRICS[metric]}, mean ± sample standard deviation over n seeds.",
        f"Gap: 100 (top-1 / top-1 of {baseline} − 1), ours by seed. Settings, tests and counts: table {study.name}.",
    ]
    if known:
        notes.append(f"Paper: {source(study)}. Lines without numbers of ours: its own dataset and models.")
    return Table(
        name=study.name + GAP,
        study=study,
        caption=one_line(f"Top-1 accuracy by number of training images, study {study.name}: gaps to {baseline}."),
        rows=list(lines),
        columns=[baseline, *(column for row in others for column in (row, _gap(row)))],
        baselines={},
        cells=cells,
        together=[],
        across={},
        notes=[one_line(note) for note in notes],
    )


def _lines(study: Study, metric: str) -> dict[str, tuple[Ours, Published]]:
    """By label, small training sets first."""
    examples, values = example_specs(study), values_by_seed(study, metric)
    lines: dict[str, tuple[Ours, Published]] = {}
    for place in subsets(study):
        found = {row: published_cell(study, examples, row, place) for row in study.rows}
        published = {row: cell for row, cell in found.items() if cell and cell.train_fraction}
        ours = {row: values[row, place] for row in study.rows if (row, place) in values}
        lines[_label(place, next(iter(published.values()), None))] = (ours, published)
    beside = {(cell.dataset, cell.train_fraction) for _, published in lines.values() for cell in published.values()}
    for row in study.rows:
        for cell in fractions(examples[row, None], study.name):
            if (cell.dataset, cell.train_fraction) not in beside:
                lines.setdefault(_label(cell.dataset, cell), ({}, {}))[1][row] = cell
    return lines


def _label(dataset: str, cell: PublishedCell | None) -> str:
    return f"{dataset}: {100 * cell.train_fraction:g}%" if cell and cell.train_fraction else dataset


def _gap(row: str) -> str:
    return f"{row}: gap (%)"


def _accuracy(row: str, ours: Ours, published: Published) -> Cell:
    from analysis.stats import sample

    return Cell(sample(ours[row]) if row in ours else None, published=published.get(row))


def _relative(row: str, baseline: str, ours: Ours, published: Published) -> Cell:
    from analysis.stats import sample

    gains, theirs = [], None
    if row in ours and baseline in ours:
        # pandas divides by index, that is by seed; a seed that only one side has gives NaN.
        gains = list((100 * (ours[row] / ours[baseline].where(ours[baseline] > 0) - 1)).dropna())
    if row in published and baseline in published:
        theirs = 100 * (published[row].value / published[baseline].value - 1)
    return Cell(sample(gains) if gains else None, published_difference=theirs, signed=True)
