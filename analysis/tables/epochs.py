"""The comparisons that a grid names, over training: does a row start faster, or end higher?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.tables import contrasts
from vitinit.analysis.tables.notes import over_fewer_seeds, quantity, seeds
from vitinit.analysis.tables.registry import TABLES, Asked
from vitinit.analysis.tables.shared import Table, TableCell, contrasts_compared
from vitinit.analysis.text import capitalised

if TYPE_CHECKING:
    import pandas as pd

MOST = 5
"""Epochs that are shown of a dataset: the first, the last, and some between; the figure accuracy has all."""


def followed(study: Study) -> bool:
    """Return True if rows that the grid compares were evaluated after several epochs."""
    return contrasts_compared(study) and any(len(_evaluated(study, place)) > 1 for place in study.columns)


def _evaluated(study: Study, place: str) -> list[int]:
    """The epochs that a column's runs of the compared rows were evaluated after."""
    rows = {row for pair in study.contrasts for row in pair}
    runs = [run for row in rows for run in study.cells.get((place, row), [])]
    return sorted({epoch for run in runs for epoch in run.evaluated})


def _shown(study: Study) -> list[int]:
    """`MOST` evenly spaced ones of each column, all in one order."""
    shown: set[int] = set()
    for place in study.columns:
        epochs = _evaluated(study, place)
        last = min(MOST, len(epochs)) - 1
        shown |= {epochs[(len(epochs) - 1) * step // max(last, 1)] for step in range(last + 1)}
    return sorted(shown)


@TABLES.add("_epochs", followed, place=3)
def over_epochs(asked: Asked) -> Table:
    """One line per contrast and dataset: the first row's accuracy, and what it has over the second, epoch by epoch."""
    from vitinit.analysis.stats import paired, sample

    study = asked.study
    epochs = _shown(study)
    places = [place for place in study.columns if _evaluated(study, place)]
    cells, baselines = {}, {}
    for pair in study.contrasts:
        for place in places:
            line = contrasts.label(pair) + (f", {place}" if len(places) > 1 else "")
            baselines[line] = pair[1]
            for epoch in epochs:
                ours, theirs = (_after(epoch, study, place, row) for row in pair)
                cells[line, f"epoch {epoch}"] = TableCell(sample(ours), paired(ours, theirs))
    notes = [
        f"Ours, of the first row: {quantity(study, 'each')}, mean ± sample standard deviation over seeds. "
        "Difference: first minus second row by seed, with its 95 % interval (Student's t; none under 3 common seeds).",
        "No p: what the grid names are the comparisons after the last epoch, in table "
        f"{study.name}_contrasts. Settings and counts: table {study.name}.",
    ]
    result = Table(
        name=asked.name,
        study=study,
        caption=f"Comparisons that the grid names, over training, study {study.name}",
        rows=list(baselines),
        columns=[f"epoch {epoch}" for epoch in epochs],
        baselines=baselines,
        cells=cells,
        shows=f"{capitalised(quantity(study, 'each'))}, of the first row",
        gain="first minus second row",
        digits=2,
    )
    result.notes.extend([*notes, seeds(result), *over_fewer_seeds(result)])
    return result


def _after(epoch: int, study: Study, place: str, row: str) -> pd.Series[float]:
    """Return the scores of the finished runs after an epoch, by seed."""
    import pandas as pd

    runs = study.cells.get((place, row), [])
    return pd.Series({run.spec.seed: run.evaluated[epoch] for run in runs if epoch in run.evaluated}, dtype=float)
