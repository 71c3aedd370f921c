"""What trained ConViTs can do without a term of their first GPSA layers' attention: ConViT's Table 6."""

from __future__ import annotations

from collections import defaultdict

from analysis.build import MASKED, Cell, Table, example_specs
from analysis.frame import Study
from analysis.published import PublishedCell, publication
from analysis.text import count, one_line
from benchmark.record import RunRecord

PAPER, TABLE = "2103.10697", "Table 6"
TERMS = {"content": "content attention", "position": "positional attention"}
"""As records and as the paper's cells call them."""
WHOLE = "whole"


def left_out(study: Study) -> bool:
    """Whether a finished run has been tested so."""
    return any(record.masked for record in study.contents.done.values())


def describe(study: Study) -> Table:
    """The table; see its notes for what is in it."""
    from analysis.stats import sample

    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    tested = [record for record in study.contents.done.values() if record.masked]
    for record in sorted(tested, key=lambda record: record.spec.seed):
        row = _row(study, record)
        values[row, WHOLE].append(record.masked[0].top1_whole)
        for found in record.masked:
            share = found.layers / (record.spec.model.gpsa_layers or 1)
            values[row, _label(found.term, share)].append(found.top1)
    cells = {key: Cell(sample(each)) for key, each in values.items()}
    theirs, examples = _published(), example_specs(study)
    matched = {row for row in study.rows if next(iter(theirs.values())).matches(examples[row, None])}
    for row in matched or {"Paper: ConViT-Ti, imagenet"}:
        for column, cell in theirs.items():
            ours = cells.get((row, column), Cell()).ours
            cells[row, column] = Cell(ours, published=cell)
    order = _labels({column for _, column in cells})
    images = sorted({found.images for record in tested for found in record.masked})
    notes = [
        f"Top-1 after the last epoch on {' or '.join(map(str, images))} test images, the same in every run, mean ± "
        f"sample standard deviation over n seeds. Settings and counts: table {study.name}.",
        "Without content the first GPSA layers, so many per cent of all of them, attend by position alone, without "
        "position by content alone; nothing is trained in between.",
        f"Paper: arXiv {PAPER}, {TABLE}: in 3, 5 and 10 of 10 GPSA layers; which 3 and 5 it does not say.",
    ]
    rows = sorted({row for row, _ in cells}, key=lambda row: _place(study, row))
    return Table(
        name=study.name + MASKED,
        study=study,
        caption=one_line(
            f"Top-1 accuracy of {count(len(tested), 'trained ConViT')} without a term of attention, study {study.name}."
        ),
        rows=rows,
        columns=order,
        baselines={},
        cells={(row, column): cells.get((row, column), Cell()) for row in rows for column in order},
        together=[],
        across={},
        notes=[one_line(note) for note in notes],
    )


def _row(study: Study, record: RunRecord) -> str:
    """The row's label, with the column's where there are several."""
    several = len({study.column[run_id] for run_id in study.contents.done}) > 1
    return f"{record.row}, {study.column[record.run_id]}" if several else record.row


def _place(study: Study, row: str) -> int:
    places = [place for place, known in enumerate(study.rows) if row == known or row.startswith(f"{known}, ")]
    return max(places, default=len(study.rows))


def _label(term: str, share: float) -> str:
    return f"no {term}, {100 * share:.0f}%"


def _labels(found: set[str]) -> list[str]:
    """The columns: the whole model, then by share of the layers, content before position."""
    return sorted(found, key=lambda label: (label != WHOLE, label.rpartition(",")[2].rjust(6), label))


def _published() -> dict[str, PublishedCell]:
    """The paper's numbers by column, that of the whole model first."""
    cells = [cell for cell in publication(PAPER).cells if cell.table == TABLE]
    names = {name: term for term, name in TERMS.items()}
    found = {WHOLE: next(cell for cell in cells if cell.masked is None)}
    for cell in cells:
        if cell.masked:
            found[_label(names[cell.masked], (cell.masked_layers or 0) / cell.model["gpsa_layers"])] = cell
    return found
