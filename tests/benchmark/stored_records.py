"""Outcomes of real runs for the tests of the store."""

from pathlib import Path
from typing import Any

from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord, from_bytes, to_bytes

REFERENCE = sorted((Path(__file__).parents[2] / "results/reference/small").glob("*.json"))


def record(index: int = 0, **changes: Any) -> RunRecord:
    found = from_bytes(REFERENCE[index].read_bytes())
    assert isinstance(found, RunRecord)
    return found.model_copy(update=changes)


def _of(run: RunRecord) -> dict[str, Any]:
    return {name: getattr(run, name) for name in ("run_id", "study", "row", "spec", "written")}


def failed(run: RunRecord, message: str = "out of memory", **where: Any) -> FailureRecord:
    fields = {"traceback": "", "execution": {}, "environment": {}, **where}
    return FailureRecord(**_of(run), error="RuntimeError", message=message, **fields)


def skipped(run: RunRecord, reason: str = "no images") -> SkipRecord:
    return SkipRecord(**_of(run), reason=reason)


WHOLE = to_bytes(record())
