"""The comparisons that a grid names, and no others: what a study stands or falls by; after training, and over it."""

from __future__ import annotations

from vitinit.analysis import gains
from vitinit.analysis.frame import Study
from vitinit.analysis.gains import label
from vitinit.analysis.tables.notes import not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.render import template
from vitinit.analysis.tables.shared import values_by_seed
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose
from vitinit.analysis.text import count

OVER = "first minus second row"
MOST = 5
"""Epochs that are shown of a dataset: the first, the last, and some between; the figure accuracy has all."""


def of_contrasts(table: Table) -> bool:
    """Return True if its rows are contrasts."""
    return table.name == f"{table.study.name}_contrasts"


@TABLES.add("_contrasts", lambda study: bool(gains.contrasts(study).tested), place=2)
def contrasts(asked: Asked) -> Table:
    """One line per contrast and dataset: the first row's accuracy, what it has over the second, and p."""
    from vitinit.analysis.stats import sample

    study, values = asked.study, values_by_seed(asked.study, asked.metric)
    found = gains.contrasts(study, asked.metric)
    cells, shown = {}, {}
    for pair in study.contrasts:
        for column in study.columns:
            test = found.tested.get((label(pair), column))
            cell = TableCell(sample(values.get((pair[0], column))), test.against if test else None, test)
            cells[label(pair), column] = cell
            if test:
                shown[label(pair) + f", {column}" * (len(study.columns) > 1), ""] = cell
    tested = [pair for pair in study.contrasts if label(pair) in {row for row, _ in found.tested}]
    notes = template("contrasts.txt.j2", study=study, found=found).splitlines() + not_initialisation_alone(
        study, tested
    )
    comparisons = count(found.size, "comparison")
    tests = [f"p: sign-flip test, Holm over {comparisons}"] * any(test.could_show for test in found.tested.values())
    if found.noise:
        how = "Holm likewise" if tests else f"Holm over {comparisons}"
        tests.append(f"Pooled: t interval and test with the noise of all rows, {how}")
    second = {label(pair): pair[1] for pair in study.contrasts}
    of = subject(study, asked.metric, first_row=True)
    return compose(asked, cells, of, notes, baselines=second, gain=OVER, digits=2, shown=shown, explained=tests)


def _evaluated(study: Study) -> dict[str, list[int]]:
    """Return by column the epochs that runs of the compared rows were evaluated after."""
    compared = {row for pair in study.contrasts for row in pair}
    epochs = study.epochs[study.epochs["row"].isin(compared)]
    return {str(column): sorted(its) for column, its in epochs.groupby("column", sort=False)["epoch"].unique().items()}


def followed(study: Study) -> bool:
    """Return True if rows that the grid compares were evaluated after several epochs."""
    return bool(gains.contrasts(study).tested) and any(len(its) > 1 for its in _evaluated(study).values())


@TABLES.add("_epochs", followed, place=3)
def over_epochs(asked: Asked) -> Table:
    """One line per contrast and dataset: the first row's accuracy, and what it has over the second, epoch by epoch."""
    import numpy as np

    from vitinit.analysis.stats import sample

    study, evaluated = asked.study, _evaluated(asked.study)
    shown = {its[int(at)] for its in evaluated.values() for at in np.linspace(0, len(its) - 1, min(MOST, len(its)))}
    groups = study.epochs.groupby(["row", "column", "epoch"])
    values = {key: its.set_index("seed")["score"] for key, its in groups}
    cells, second = {}, {}
    for first, other in study.contrasts:
        for place in evaluated:
            line = label((first, other)) + f", {place}" * (len(evaluated) > 1)
            second[line] = other
            for epoch in sorted(shown):
                ours, theirs = (values.get((row, place, epoch)) for row in (first, other))
                cells[line, f"epoch {epoch}"] = TableCell(sample(ours), gains.compare(ours, theirs))
    notes = [
        "No p: what the grid names are the comparisons after the last epoch, in table "
        f"{study.name}_contrasts. Intervals: Student's t; none under 3 common seeds. Settings: table {study.name}."
    ]
    of = subject(study, "each", first_row=True)
    return compose(asked, cells, of, notes, baselines=second, gain=OVER, digits=2)
