"""Records as tidy tables for other programs: one row per run, one row per epoch. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.benchmark.records.record import Outcome, RunRecord, SkipRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.settings import flatten
from vitinit.initializers.errors import VitinitError, unknown_name

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
FORMULA = "=", "+", "-", "@", "\t", "\r"
"""Beginnings of a cell that spreadsheets compute."""
LEFT_OUT: dict[str, Any] = {
    **dict.fromkeys(("spec", "error", "message", "traceback", "reason"), True),
    **dict.fromkeys(("history", "sessions", "notes", "probes", "masked", "correct"), True),
    "init": {"norms", "offset_maps", "remarks", "start"},
}
"""Fields that are left out: other columns hold them, or they have an entry a layer, epoch, tensor or image."""


def tables(asked: str | Iterable[str] | None, *roots: Path) -> tuple[list[Row], list[Row], list[str]]:
    """The rows of both tables, failed and skipped runs in the first, with their reason; and what cannot be read.

    Args:
        asked: Study, or several; None for all.
        roots: Folders with records; the first one that has some counts.

    Raises:
        VitinitError: there are no records, or none of such a study.
    """
    store = next((Store(root) for root in roots if Store(root).studies()), None)
    if store is None:
        raise VitinitError(f"no records in {' or '.join(map(str, roots))}; run a study first: vitinit run smoke")
    known = store.studies()
    runs, epochs, unread = list[Row](), list[Row](), list[str]()
    for study in known if asked is None else [asked] if isinstance(asked, str) else asked:
        if study not in known:
            raise unknown_name("study", study, known)
        contents = store.read(study)
        try:
            contents.relabel(store.layout(study))
        except VitinitError as error:
            contents.problems.append(str(error))
        unread += contents.problems
        for outcomes in (contents.done, contents.failed, contents.skipped):
            runs += map(_row, outcomes.values())
        for record in contents.done.values():
            run = {"run_id": record.run_id, "study": study, "row": record.row, "seed": record.spec.seed}
            for epoch in record.history:
                fields = {name: value for name, value in epoch if name not in ("metrics", "headline")}
                epochs.append({**run, **fields, **epoch.metrics})
    return runs, epochs, unread


def csv_text(table: pd.DataFrame, **options: Any) -> str:
    """Return a table as CSV. A text that a spreadsheet would compute, such as `=1+1`, has an apostrophe before it."""

    def text(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value

    return table.map(text).rename(columns=text).to_csv(index=False, **options)


def _row(outcome: Outcome) -> Row:
    row = {name: getattr(outcome, name) for name in ("run_id", "study", "row", "status")}
    row |= {"reason": None, **flatten(outcome.spec.model_dump(mode="json"))}
    if isinstance(outcome, RunRecord):
        best_epoch, best = outcome.best
        row |= {outcome.metric: outcome.score, f"best_{outcome.metric}": best, "best_epoch": best_epoch}
        if outcome.last.ema_score is not None:
            row["ema_score"] = outcome.last.ema_score
        row |= outcome.last.metrics
    elif isinstance(outcome, SkipRecord):
        row["reason"] = outcome.reason
    else:
        row["reason"] = f"{outcome.error}: {outcome.message}"
    row |= flatten(outcome.model_dump(mode="json", exclude=LEFT_OUT))
    for group in ("method", "init.pseudo_input", "init.real_images"):
        row.pop(group, None)  # here only where there is none; otherwise its fields are columns of their own
    return row
