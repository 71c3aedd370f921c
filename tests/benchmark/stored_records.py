"""Outcomes of real runs for the tests of the store."""

from pathlib import Path

from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord, from_bytes, to_bytes

REFERENCE = sorted((Path(__file__).parents[2] / "results/reference/small").glob("*.json"))


def record(index=0, **changes):
    found = from_bytes(REFERENCE[index].read_bytes())
    assert isinstance(found, RunRecord)
    return found.model_copy(update=changes)


def _of(run):
    return {name: getattr(run, name) for name in ("run_id", "study", "row", "spec", "written")}


def failed(run, message="out of memory", **where):
    fields = {"traceback": "", "execution": {}, "environment": {}, **where}
    return FailureRecord(**_of(run), error="RuntimeError", message=message, **fields)


def skipped(run, reason="no images"):
    return SkipRecord(**_of(run), reason=reason)


WHOLE = to_bytes(record())
