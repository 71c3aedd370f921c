"""Outcome of a run in the results folder: its record, or its failure."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.environment import environment, shareable
from vitinit.runners.basics.setting import Setting

if TYPE_CHECKING:
    from vitinit.runners.training.checkpoint import Checkpoints


def record(outcome: RunRecord | FailureRecord, store: Store, checkpoints: Checkpoints) -> None:
    """Write the record; when the folder does not take it, put it where the user can fetch it."""
    try:
        store.write(outcome)
    except VitinitError:
        checkpoints.make_room()  # a full disk has room for a record then
        try:
            store.write(outcome)
        except VitinitError as error:
            try:
                path = Store(tempfile.mkdtemp(prefix="vitinit-")).write(outcome)
            except (OSError, VitinitError):  # often on the same full disk
                raise error from None
            command = shlex.join(["mv", str(path), f"{store.root / outcome.study}/"])
            raise VitinitError(
                f"{error}; the record is safe, put it in place when that can be written: {command}"
            ) from None


def final_outcome(cell: Cell, setting: Setting) -> RunRecord | FailureRecord | None:
    """Return the record of a run that has ended; None where it has failed and is to be tried again."""
    found = Store(setting.root).outcome(setting.study, cell.run_id)
    again = isinstance(found, FailureRecord) and found.written == setting.retried.get(found.run_id)
    return None if again or isinstance(found, SkipRecord) else found


def failure(cell: Cell, setting: Setting, error: str, message: str, trace: str = "") -> FailureRecord:
    """The record of a run that did not finish."""
    return FailureRecord(
        run_id=cell.spec.run_id,
        study=setting.study,
        row=cell.row,
        spec=cell.spec,
        written=now(),
        error=error,
        message=shareable(message),
        traceback=shareable(trace),
        execution=asdict(setting.execution),
        environment=environment(setting.execution.device, setting.code),
    )


def skip(cell: Cell, study: str, reason: str) -> SkipRecord:
    """The record of a run that cannot start here."""
    return SkipRecord(run_id=cell.spec.run_id, study=study, row=cell.row, spec=cell.spec, written=now(), reason=reason)


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
