"""Attention that nothing reads: that of the patches in the last layer of a model that answers by its class token alone.

No gradient reaches their queries there, so what is measured of them tells nothing of what training wants.
"""

from __future__ import annotations

from collections.abc import Iterable

from vitinit.analysis.text import one_line
from vitinit.benchmark.metrics.registry import OF_LABELS
from vitinit.benchmark.records.record import RunRecord

MARK = "†"
NOTE = "answers by its class token: nothing reads the patches of the last layer"


def marked(runs: Iterable[RunRecord]) -> str:
    """Return the suffix of the name of a row."""
    unread = any(not run.spec.model.reads_patches and run.last.field == OF_LABELS for run in runs)
    return f" {MARK}" if unread else ""


def with_mark(row: str, run: RunRecord, most: int = 60) -> str:
    """The name of a row and its mark, which a name that is too long leaves room for."""
    mark = marked([run])
    return one_line(row, most - len(mark)) + mark


def said(runs: Iterable[RunRecord]) -> str:
    """Return the meaning of the mark; empty where there is none."""
    return f"{MARK} {NOTE}" if marked(runs) else ""
