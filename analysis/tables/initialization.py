"""Attention on the target and cost of the initialisations of a study, beside accuracy."""

from __future__ import annotations

from collections.abc import Callable

from vitinit.analysis.frame import Study
from vitinit.analysis.tables.registry import TABLES, Asked
from vitinit.analysis.tables.shared import Table, TableCell
from vitinit.benchmark.records.record import RunRecord
from vitinit.initializers.report import Fidelity

Measure = Callable[[RunRecord], "float | None"]


def _mass(fidelity: Fidelity | None) -> float | None:
    return 100 * fidelity.mass if fidelity else None


def _norm(record: RunRecord) -> float | None:
    norms = record.init.norms[0].query if record.init.norms else []
    return sum(norms) / len(norms) if norms else None


def _score(record: RunRecord) -> float:
    return record.score


MEASURES: dict[str, Measure] = {
    "on target, pseudo-input (%)": lambda record: _mass(record.init.pseudo_input),
    "on target, images (%)": lambda record: _mass(record.init.real_images),
    "norm of W_q": _norm,
    "initialisation (ms)": lambda record: 1000 * record.init.seconds,
}
NOTES = (
    "On target: attention mass that a query of the first layer puts on its target token, mean over heads and queries, "
    "on the pseudo-input that the method solved on (biases left out) and on real images. None without a target.",
    "Norm of W_q: Frobenius, mean over the heads of the first layer. Initialisation: base and method together; of a "
    "solution that an earlier run had computed, the time that it took then.",
    "Mean ± sample standard deviation over n seeds; {} after the last epoch.",
)


def aimed(study: Study) -> bool:
    """Return True if a method of a finished run has attention targets."""
    return any(record.init.pseudo_input for record in study.contents.done.values())


@TABLES.add("_initialization", aimed, place=7)
def initialization(asked: Asked) -> Table:
    """Return the table, of columns where a method has attention targets; `NOTES` describes its cells."""
    from vitinit.analysis.stats import sample

    study = asked.study
    cells: dict[tuple[str, str], TableCell] = {}
    columns: list[str] = []
    rows: set[str] = set()
    for place in study.columns:
        by_row = {row: study.cells[place, row] for row in study.rows if (place, row) in study.cells}
        if not any(record.init.pseudo_input for records in by_row.values() for record in records):
            continue
        rows |= by_row.keys()
        for name, measure in {f"{study.metrics[place]} (%)": _score, **MEASURES}.items():
            columns.append(f"{place}: {name}")
            for row in study.rows:
                values = [value for record in by_row.get(row, ()) if (value := measure(record)) is not None]
                cells[row, columns[-1]] = TableCell(sample(sorted(values)) if values else None)
    caption = f"What initialisation does and costs, study {study.name}"
    shown = [row for row in study.rows if row in rows]
    return Table(
        asked.name,
        study,
        caption,
        shown,
        columns,
        {},
        cells,
        notes=[note.format(study.measured) for note in NOTES],
        shows="On target: attention of the first layer on its target token",
        digits=2,
    )
