"""The comparisons that a grid names, and no others: what a study stands or falls by; after training, and over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis import gains
from vitinit.analysis.frame import Study
from vitinit.analysis.gains import LEVEL, Contrasts, label
from vitinit.analysis.tables.notes import not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.shared import contrasts_compared, values_by_seed
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose
from vitinit.analysis.text import count

if TYPE_CHECKING:
    import pandas as pd

OVER = "first minus second row"
MOST = 5
"""Epochs that are shown of a dataset: the first, the last, and some between; the figure accuracy has all."""


def of_contrasts(table: Table) -> bool:
    """Return True if its rows are contrasts."""
    return table.name == f"{table.study.name}_contrasts"


@TABLES.add("_contrasts", contrasts_compared, place=2)
def contrasts(asked: Asked) -> Table:
    """One line per contrast and dataset: the first row's accuracy, what it has over the second, and p."""
    from vitinit.analysis.stats import sample

    study, values = asked.study, values_by_seed(asked.study, asked.metric)
    found = gains.contrasts(study, asked.metric)
    cells, shown = {}, {}
    for pair in study.contrasts:
        for column in study.columns:
            test = found.tested.get((label(pair), column))
            ours = sample(values.get((pair[0], column)))
            cell = cells[label(pair), column] = TableCell(ours, test.against if test else None, test)
            if test:
                line = f"{label(pair)}, {column}" if len(study.columns) > 1 else label(pair)
                shown[line, ""] = cell
    compared = {row for row, _ in found.tested}
    waiting = found.size - len(found.tested)
    notes = [
        f"p: exact two-sided sign-flip test, corrected by Holm over {count(found.size, 'comparison')}, which the grid "
        f"names{f', {waiting} without runs yet' if waiting else ''}; not shown where it could not be under {LEVEL}, "
        "whatever the numbers. Intervals: Student's t; none under 3 common seeds.",
        *_of_the_model(found),
        f"Settings and counts: table {study.name}.",
        *not_initialisation_alone(study, [pair for pair in study.contrasts if label(pair) in compared]),
    ]
    holm = f"Holm over {count(found.size, 'comparison')}"
    explained = []
    if any(test.could_show for test in found.tested.values()):
        explained.append(f"p: sign-flip test, {holm}")
    if found.noise:
        explained.append(
            f"Pooled: t interval and test with the noise of all rows, {'Holm likewise' if explained else holm}"
        )
    second = {label(pair): pair[1] for pair in study.contrasts}
    of = subject(study, asked.metric, first_row=True)
    return compose(asked, cells, of, notes, baselines=second, gain=OVER, digits=2, shown=shown, explained=explained)


def _of_the_model(found: Contrasts) -> list[str]:
    """Return the notes on pooled intervals: model and smallest detectable effects."""
    notes = []
    for column, noise in found.noise.items():
        sizes = [test.detectable for (_, place), test in found.tested.items() if place == column and test.detectable]
        if sizes:
            between = dict.fromkeys(f"{size:.2f}" for size in (min(sizes), max(sizes)))
            notes.append(
                f"Pooled, on {column}: Student's t interval and test of the model row + seed, fitted to all rows "
                f"(residual standard deviation {noise.std:.2f}, {noise.df} degrees of freedom; normal noise, alike in "
                f"all rows). Smallest effect detectable by it: {' to '.join(between)} points (level {LEVEL}, power "
                "0.8, one comparison alone)."
            )
    return notes


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
    places = [place for place in study.columns if _evaluated(study, place)]
    cells, second = {}, {}
    for pair in study.contrasts:
        for place in places:
            line = label(pair) + (f", {place}" if len(places) > 1 else "")
            second[line] = pair[1]
            for epoch in _shown(study):
                ours, theirs = (_after(epoch, study, place, row) for row in pair)
                cells[line, f"epoch {epoch}"] = TableCell(sample(ours), paired(ours, theirs))
    notes = [
        "No p: what the grid names are the comparisons after the last epoch, in table "
        f"{study.name}_contrasts. Intervals: Student's t; none under 3 common seeds. Settings: table {study.name}."
    ]
    of = subject(study, "each", first_row=True)
    return compose(asked, cells, of, notes, baselines=second, gain=OVER, digits=2)


def _after(epoch: int, study: Study, place: str, row: str) -> pd.Series[float]:
    """Return the scores of the finished runs after an epoch, by seed."""
    import pandas as pd

    runs = study.cells.get((place, row), [])
    return pd.Series({run.spec.seed: run.evaluated[epoch] for run in runs if epoch in run.evaluated}, dtype=float)
