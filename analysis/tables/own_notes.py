"""The notes below a study's own table: what they count; the words are the template `notes.txt.j2`."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import Study
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
from vitinit.analysis.tables.render import template
from vitinit.analysis.tables.shared import LEVEL, Table, contrasts_compared, skipped
from vitinit.analysis.text import one_line

if TYPE_CHECKING:
    import pandas as pd


def notes(table: Table, metric: str) -> list[str]:
    """Return the notes below the table, in order, by the template `notes.txt.j2`.

    Args:
        table: All but its notes.
        metric: `last` or `best`.
    """
    return template("notes.txt.j2", table=table, facts=_facts(table, metric), level=LEVEL).splitlines()


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
        "tested": any(pair.p is not None for pair in pairs.values()),
        "floors": _floors(table),
        "more_than_initialisation": not_initialisation_alone(study, compared_rows(table)),
        "without_base": [
            row for row in table.rows if row in with_method and not table.baseline and row not in table.baselines
        ],
        "best": any(cell.best for cell in cells),
        "excluded": any(cell.excludes_published for cell in cells),
        "better": any(across.better for across in table.across.values()),
        "images_shared": len({study.examples[None, column].dataset for column in table.together}) < len(table.together),
        "not_across": [row for row in table.rows if row not in table.across],
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


def _floors(table: Table) -> list[str]:
    """Return the lowest possible p by number of pairs, where that is too high for it to be shown."""
    floors = {}
    for cell in table.cells.values():
        if cell.against and cell.least_p is not None and cell.least_p > LEVEL:
            n = cell.against.n
            floors[n] = f"n={n}: {cell.against.least_p:.2g} in one test alone, {cell.least_p:.2g} corrected"
    return [floors[n] for n in sorted(floors)]


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
