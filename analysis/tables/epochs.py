"""The comparisons that a grid names, over training: does a row start faster, or end higher?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.frame import Study
from analysis.tables import contrasts
from analysis.tables.notes import measured
from analysis.tables.registry import TABLES, Asked
from analysis.tables.shared import Cell, Table
from analysis.text import one_line

if TYPE_CHECKING:
    import pandas as pd

MOST = 5
"""Epochs that are shown, the last one among them; the figure accuracy has all."""


def followed(study: Study) -> bool:
    """Whether runs that the grid compares were evaluated after several epochs."""
    return contrasts.compared(study) and any(len(_shown(study, place)) > 1 for place in study.columns)


def _shown(study: Study, place: str) -> list[int]:
    """Of the epochs that a column's runs were evaluated after, `MOST` evenly spaced ones."""
    runs = [run for (column, _), runs in study.cells.items() if column == place for run in runs]
    epochs = sorted({epoch for run in runs for epoch in run.evaluated})
    count = min(MOST, len(epochs))
    return [epochs[len(epochs) * number // count - 1] for number in range(1, count + 1)]


@TABLES.add("_epochs", followed, place=3)
def over_epochs(asked: Asked) -> Table:
    """One line per contrast and dataset: the first row's accuracy, and what it has over the second, epoch by epoch."""
    from analysis.stats import paired, sample

    study = asked.study
    shown = {place: _shown(study, place) for place in study.columns}
    columns = [f"epoch {epoch}" for epoch in sorted({epoch for epochs in shown.values() for epoch in epochs})]
    cells, baselines = {}, {}
    for pair in study.contrasts:
        for place, epochs in shown.items():
            line = contrasts.label(pair) + (f", {place}" if len(shown) > 1 else "")
            baselines[line] = pair[1]
            cells.update({(line, column): Cell() for column in columns})
            for epoch in epochs:
                first, second = (_after(epoch, study, place, row) for row in pair)
                if len(first):
                    against = paired(first, second) if len(second) else None
                    cells[line, f"epoch {epoch}"] = Cell(sample(first), against)
    notes = [
        f"Ours, of the first row: {measured(study, 'each')}, mean ± sample standard deviation over seeds. "
        "Difference: first minus second row by seed, with its 95 % interval (Student's t; none under 3 common seeds).",
        "No p: the comparisons that the grid names are those after the last epoch, in table "
        f"{study.name}_contrasts. Settings and counts: table {study.name}.",
    ]
    return Table(
        name=asked.name,
        study=study,
        caption=one_line(f"Comparisons that the grid names, over training, study {study.name}."),
        rows=list(baselines),
        columns=columns,
        baselines=baselines,
        cells=cells,
        notes=[one_line(note) for note in notes],
    )


def _after(epoch: int, study: Study, place: str, row: str) -> pd.Series[float]:
    """What the finished runs had after an epoch, by seed."""
    import pandas as pd

    runs = study.cells.get((place, row), [])
    return pd.Series({run.spec.seed: run.evaluated[epoch] for run in runs if epoch in run.evaluated}, dtype=float)
