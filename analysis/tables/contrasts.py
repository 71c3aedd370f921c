"""The comparisons that a grid names, and no others: what a study stands or falls by; after training, and over it."""

from collections import defaultdict
from itertools import product

import numpy as np

from vitinit.analysis.comparison import compare, named
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import values_by_seed
from vitinit.analysis.tables.notes import not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose

OVER = "as the row says"
MOST = 5
"""Epochs that are shown of a dataset: the first, the last, and some between; the figure accuracy has all."""


def of_contrasts(table: Table) -> bool:
    """Return True if its rows are contrasts."""
    return table.name == f"{table.study.name}_contrasts"


@TABLES.add("_contrasts", lambda study: bool(named(study)), place=2)
def contrasts(asked: Asked) -> Table:
    """Return a line per contrast and dataset: accuracy of the row before the minus, the difference, and p."""
    study, values = asked.study, values_by_seed(asked.study)
    comparisons = named(study)
    cells, shown = {}, {}
    for contrast in study.contrasts:
        first, _ = study.pairs.get(contrast.name, ("", ""))
        for column in study.columns:
            comparison = comparisons.get((contrast.name, column))
            cell = TableCell(values.get((first, column)), comparison)
            cells[contrast.name, column] = cell
            if comparison:
                shown[contrast.name + f", {column}" * (len(study.columns) > 1), ""] = cell
    tested = [pair for name, pair in study.pairs.items() if any(name == row for row, _ in comparisons)]
    notes = study.note("contrasts", named=comparisons.values())
    notes += [*not_initialisation_alone(study, tested), f"Settings and counts: table {study.name}."]
    second, of = {name: pair[1] for name, pair in study.pairs.items()}, subject(study, bool(study.pairs))
    return compose(asked, cells, of, notes, baselines=second, gain=OVER, digits=2, shown=shown)


def _evaluated(study: Study) -> dict[str, list[int]]:
    """Return by column the epochs after which both rows of a comparison were evaluated."""
    epochs = {key: set(values) for key, values in study.epochs.groupby(["column", "row"])["epoch"]}
    common = defaultdict[str, set[int]](set)
    for pair, column in product(study.pairs.values(), study.columns):
        common[column] |= set.intersection(*(epochs.get((column, row), set()) for row in pair))
    return {column: sorted(values) for column, values in common.items() if values}


@TABLES.add("_epochs", lambda study: any(len(epochs) > 1 for epochs in _evaluated(study).values()), place=3)
def over_epochs(asked: Asked) -> Table:
    """Return a line per contrast and dataset: accuracy of the row before the minus and the difference, by epoch."""
    study, evaluated = asked.study.by("last"), _evaluated(asked.study)
    shown = {
        epochs[int(at)]
        for epochs in evaluated.values()
        for at in np.linspace(0, len(epochs) - 1, min(MOST, len(epochs)))
    }
    cells, second = {}, {}
    for name, pair in study.pairs.items():
        for place in evaluated:
            line = name + f", {place}" * (len(evaluated) > 1)
            second[line] = pair[1]
            for epoch in sorted(shown):
                ours = values_by_seed(study, epoch=epoch).get((pair[0], place))
                cells[line, f"epoch {epoch}"] = TableCell(ours, compare(study, pair, place, epoch=epoch))
    notes = [
        "The grid names the comparisons after the last epoch alone (table "
        f"{study.name}_contrasts); those before have Student's interval and no p. Settings: table {study.name}."
    ]
    return compose(asked, cells, subject(study, True, "each"), notes, baselines=second, gain=OVER, digits=2)
