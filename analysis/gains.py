"""Paired differences by seed between two rows of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.stats import Interval, Paired, paired
from vitinit.analysis.tables.render import interval_text
from vitinit.analysis.tables.shared import values_by_seed
from vitinit.analysis.text import signed

if TYPE_CHECKING:
    from vitinit.analysis.frame import Study


def gain(study: Study, row: str, over: str) -> Paired | None:
    """Compare two rows over their common seeds, in the study's first column; None where they have none.

    A gain is positive, in an error too.
    """
    values, column = values_by_seed(study, "last"), study.columns[0]
    if not {(row, column), (over, column)} <= values.keys():
        return None
    sign = -1 if study.lower_is_better else 1
    return paired(sign * values[row, column], sign * values[over, column])


def written(points: float, its: Interval, digits: int = 2) -> str:
    """A difference for a cell of a table: `+2.20 [1.79, 2.60]`."""
    return f"{signed(points, digits)} {interval_text(its, digits)}"
