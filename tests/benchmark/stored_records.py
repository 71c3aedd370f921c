"""Outcomes of real runs for the tests of the store, and text that a terminal must never get as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord, from_bytes, to_bytes

REFERENCE = sorted((Path(__file__).parents[2] / "results/reference/small").glob("*.json"))
EVIL = '\x1b]0;owned\x07\x1b[2J[red]x[/red]\r\n\u202etxt, "quoted" \\begin{x} %&_'


def record(index: int = 0, **changes: Any) -> RunRecord:
    found = from_bytes(REFERENCE[index].read_bytes())
    assert isinstance(found, RunRecord)
    return found.model_copy(update=changes)


def failed(of: RunRecord, message: str = "out of memory") -> FailureRecord:
    shared = {name: getattr(of, name) for name in ("run_id", "study", "row", "spec", "written")}
    return FailureRecord(**shared, error="RuntimeError", message=message, traceback="", execution={}, environment={})


def skipped(of: RunRecord, reason: str = "no images") -> SkipRecord:
    return SkipRecord(
        **{name: getattr(of, name) for name in ("run_id", "study", "row", "spec", "written")}, reason=reason
    )


def undigested(path: Path = REFERENCE[0]) -> dict[str, Any]:
    """A reference record's JSON without its digest."""
    content: dict[str, Any] = json.loads(path.read_bytes())
    del content["digest"]
    return content


WHOLE = to_bytes(record())
