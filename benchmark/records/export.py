"""Records as tidy tables for other programs: one row per run, one row per epoch. Imports no torch."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.records.record import Outcome, RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError, os_errors

Row = dict[str, Any]


def export(
    store: Store, studies: Iterable[str], out: Path, form: Literal["csv", "parquet"]
) -> tuple[list[tuple[Path, int]], list[str]]:
    """Write `runs` and `epochs` of some studies into a folder.

    Returns:
        The two files with their numbers of rows, and a line for each file of the studies that cannot be read.

    Raises:
        VitinitError: the folder cannot be written, or parquet is asked for and pyarrow is not installed.
    """
    if form == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise VitinitError("--format parquet needs pyarrow: pip install pyarrow; --format csv needs nothing")
    runs, epochs, unread = tables(store, studies)
    written = []
    for name, rows in (("runs", runs), ("epochs", epochs)):
        path = out / f"{name}.{form}"
        with os_errors(f"cannot write {path}"):
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(path, _csv(rows) if form == "csv" else _parquet(rows))
        written.append((path, len(rows)))
    return written, unread


def tables(store: Store, studies: Iterable[str]) -> tuple[list[Row], list[Row], list[str]]:
    """The rows of both tables, failed and skipped runs in the first, with their reason; and what cannot be read."""
    runs: list[Row] = []
    epochs: list[Row] = []
    unread: list[str] = []
    for study in studies:
        contents = store.read(study)
        unread += contents.problems
        for record in contents.done.values():
            runs.append(_row(record, ""))
            run: Row = {"run_id": record.run_id, "study": study, "row": record.row, "seed": record.spec.seed}
            for epoch in record.history:
                fields = {name: value for name, value in epoch if name not in ("metrics", "headline")}
                epochs.append({**run, **fields, **epoch.metrics})
        runs += [_row(failed, f"{failed.error}: {failed.message}") for failed in contents.failed.values()]
        runs += [_row(skipped, skipped.reason) for skipped in contents.skipped.values()]
    return runs, epochs, unread


def flatten(values: dict[str, Any], prefix: str = "") -> Row:
    """Nested fields as `outer.inner`; lists as JSON text."""
    row: Row = {}
    for key, value in values.items():
        if isinstance(value, dict):
            row |= flatten(value, f"{prefix}{key}.")
        else:
            row[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return row


def _row(outcome: Outcome, reason: str) -> Row:
    row: Row = {
        "run_id": outcome.run_id,
        "study": outcome.study,
        "row": outcome.row,
        "status": outcome.status,
        "reason": reason or None,
        **flatten(outcome.spec.model_dump(mode="json")),
    }
    if isinstance(outcome, RunRecord):
        # What the other columns hold already, and what has a line a layer, epoch, tensor or image.
        held = ("run_id", "study", "row", "status", "spec", "execution", "environment")
        left_out: dict[str, Any] = dict.fromkeys((*held, "history", "sessions", "probes", "masked", "correct"), True)
        of_init = dict.fromkeys(("method_parameters", "norms", "offset_maps", "start"), True)
        left_out["init"] = {**of_init, "placebo": {"treated", "method", "matched", "weights"}}
        fields = outcome.model_dump(mode="json", exclude=left_out)
        best_epoch, best = outcome.best
        row |= {outcome.metric: outcome.score, f"best_{outcome.metric}": best, "best_epoch": best_epoch}
        averaged = {} if outcome.last.ema_score is None else {"ema_score": outcome.last.ema_score}
        row |= {**averaged, **outcome.last.metrics, **flatten(fields)}
    else:
        row |= {"schema_version": outcome.schema_version, "written": outcome.written}
    if outcome.status != "skipped":
        row |= flatten({"execution": outcome.execution, "environment": outcome.environment})
    for group in ("method", "init.pseudo_input", "init.real_images", "init.placebo"):
        row.pop(group, None)  # here only where there is none; otherwise its fields are columns of their own
    return row


def _columns(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _csv(rows: list[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(rows), restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _parquet(rows: list[Row]) -> bytes:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=_columns(rows))
    for column in frame:
        kinds = {type(value) for value in frame[column] if value is not None and value == value}
        if len(kinds) > 1 and not kinds <= {int, float}:
            # A parameter may be a number in one run and a word in another; a column of a file has one type.
            frame[column] = frame[column].map(lambda value: None if value is None or value != value else str(value))
    return frame.to_parquet(None, engine="pyarrow", index=False)
