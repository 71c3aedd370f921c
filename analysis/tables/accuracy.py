"""The study's own table: top-1 by row and column, its difference to its base, the paper's number, and its notes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import Study
from vitinit.analysis.published import context
from vitinit.analysis.tables.context import beside
from vitinit.analysis.tables.notes import (
    compared_rows,
    compared_with,
    mixed_code,
    not_initialisation_alone,
    over_fewer_seeds,
    quantity,
    seeds,
    settings,
    without_record,
)
from vitinit.analysis.tables.registry import TABLES, Asked
from vitinit.analysis.tables.render import template
from vitinit.analysis.tables.shared import (
    Key,
    Table,
    TableCell,
    Values,
    accuracy_of,
    baselines_of,
    contrasts_compared,
    published_numbers,
    skipped,
    values_by_seed,
)
from vitinit.analysis.text import capitalised, one_line

if TYPE_CHECKING:
    import pandas as pd


@TABLES.add("", place=1)
def accuracy(asked: Asked) -> Table:
    """Every row and column; see the notes for what is in a cell."""
    study = asked.study
    baselines = baselines_of(study, asked.baseline)
    values = values_by_seed(study, asked.metric)
    rows = asked.rows or study.rows
    result = Table(
        name=asked.name,
        study=study,
        caption=study.layout.title or f"{accuracy_of(study)} by initialisation, study {study.name}",
        rows=study.rows,
        columns=study.columns,
        baselines=baselines,
        cells=_cells(study, rows, baselines, values),
        baseline=asked.baseline,
        published=context(study.name),
        shows=capitalised(quantity(study, asked.metric)),
    )
    result.notes.extend(_notes(result, asked.metric))
    if unknown := [key for column in study.columns for key in _best(study, rows, column, values)[1]]:
        where = ", ".join(f"{row} on {column}" for row, column in unknown)
        result.notes.append(f"Not compared with the highest mean, as they share under 3 seeds: {where}.")
    return result


def _cells(
    study: Study,
    shown: list[str],
    baselines: dict[str, str],
    values: Values,
) -> dict[Key, TableCell]:
    from vitinit.analysis.stats import paired, sample

    keys = [(row, column) for column in study.columns for row in study.rows]
    best = {place for column in study.columns for place in _best(study, shown, column, values)[0]}
    published = published_numbers(study)
    cells = {}
    for key in keys:
        other = baselines.get(key[0], ""), key[1]
        here, theirs = published.get(key), published.get(other)
        if here and theirs and (here.publication is not theirs.publication or here.table != theirs.table):
            theirs = None
        cells[key] = TableCell(
            ours=sample(values.get(key)),
            against=paired(values[key], values[other]) if key in values and other in values else None,
            best=key in best,
            published=here,
            published_difference=here.value - theirs.value if here and theirs else None,
        )
    return cells


def _best(study: Study, rows: list[str], column: str, values: Values) -> tuple[list[Key], list[Key]]:
    """The row with the best mean and those not told apart from it, of rows with three seeds or more.

    And those of which nothing can be said, as fewer than three of their seeds are seeds of the best.
    """
    from vitinit.analysis.stats import LEAST_PAIRS, differences, t_interval

    keys = [(row, column) for row in rows if len(values.get((row, column), ())) >= LEAST_PAIRS]
    if len(keys) < 2:
        return [], []
    best = min if study.lower_is_better else max
    top = best(keys, key=lambda key: float(values[key].mean()))
    intervals = {key: t_interval(differences(values[key], values[top])) for key in keys}
    return [key for key, its in intervals.items() if its and 0 in its], [k for k, its in intervals.items() if not its]


def _notes(table: Table, metric: str) -> list[str]:
    """Return the notes below the table, in order, by the template `notes.txt.j2`.

    Args:
        table: All but its notes.
        metric: `last` or `best`.
    """
    return template("notes.txt.j2", table=table, facts=_facts(table, metric)).splitlines()


def _facts(table: Table, metric: str) -> dict[str, Any]:
    """Count what the notes say."""
    study, contents, cells = table.study, table.study.contents, table.cells.values()
    runs = study.runs[study.runs["row"].isin(table.rows)]
    pairs = {key: cell.against for key, cell in table.cells.items() if cell.against}
    with_method = {outcome.row for outcome in study.outcomes if outcome.spec.method}
    left_out = skipped(study)
    absent = [
        f"{row} on {column}"
        for (row, column), cell in table.cells.items()
        if not (cell.ours or (row, column) in left_out)
    ]
    recorded = {name: _known(runs[name]) for name in ("precision", "device", "hardware")}
    return {
        "quantity": quantity(study, metric),
        "pairs": len(pairs),
        "own_bases": compared_with({row: table.baselines[row] for row, _ in pairs}) if pairs else "",
        "contrasts_compared": contrasts_compared(study),
        "more_than_initialisation": not_initialisation_alone(study, compared_rows(table)),
        "without_base": [
            row for row in table.rows if row in with_method and not table.baseline and row not in table.baselines
        ],
        "best": any(cell.best for cell in cells),
        "excluded": any(cell.excludes_published for cell in cells),
        "missing": [*absent, *without_record(study)],
        "seeds": [seeds(table), *over_fewer_seeds(table)],
        "settings": settings(runs),
        "recorded": recorded,
        "mixed": [f"{name} ({', '.join(known)})" for name, known in recorded.items() if len(known) > 1],
        "commits": sorted({str(commit)[:10] for commit in runs["commit"].dropna()}),
        "without_commit": int(runs["commit"].isna().sum()),
        "dirty": int((runs["dirty"] == True).sum()),  # noqa: E712 - None counts as not dirty
        "runs": len(runs),
        "beside": [*mixed_code(table), *beside(table)],
        "changed": sum(bool(run.environment.get("changed_while_running")) for run in contents.done.values()),
        "without_numbers": _without_numbers(study),
    }


def _known(values: pd.Series[Any]) -> list[str]:
    """The values of a column of runs, and `unknown` where some have none."""
    return sorted({str(value) for value in values.dropna()}) + ["unknown"] * bool(values.isna().any())


def _without_numbers(study: Study) -> list[tuple[str, dict[str, list[int]], str]]:
    """Runs that failed or were skipped: which, their seeds by row and column, and the reason."""
    found = []
    for word, outcomes in (("Failed", study.contents.failed), ("Skipped", study.contents.skipped)):
        where: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for outcome in outcomes.values():
            why = outcome.reason if outcome.status == "skipped" else f"{outcome.error}: {outcome.message}"
            reason = one_line(next(iter(why.strip().splitlines()), ""), 160)
            where[reason][f"{outcome.row} on {study.column[outcome.run_id]}"].append(outcome.spec.seed)
        for reason, cells in sorted(where.items()):
            found.append((word, {cell: sorted(cells[cell]) for cell in sorted(cells)}, reason))
    return found
