"""Gains over a numeric axis of a study: width, depth, training length or training images."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from vitinit.analysis import gains
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.notes import not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.shared import METRICS
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose
from vitinit.benchmark.records.record import RunRecord

if TYPE_CHECKING:
    import pandas as pd

LEAST_VALUES = 3
"""Values of the axis; fewer are no curve."""
AXES: dict[str, Callable[[RunRecord], float | None]] = {
    "training images": lambda run: run.dataset.train,
    "width": lambda run: getattr(run.spec.model, "width", None),
    "depth": lambda run: getattr(run.spec.model, "depth", None),
    "epochs": lambda run: run.spec.recipe.epochs,
}
"""Axes by name, in order of preference where a study varies several at once."""


@dataclass(frozen=True)
class ScalingCurve:
    """One initialisation over the values of an axis."""

    label: str
    place: str
    """Column of the dataset, or the dataset alone where the axis is its size."""
    rows: dict[float, str]
    """Row label by value of the axis."""
    scores: dict[float, pd.Series[float]]
    """Scores in percent by seed, by value of the axis."""
    base: str | None
    """Label of the series that gains are over, on the same dataset; None for that series itself."""


@dataclass(frozen=True)
class Scaling:
    """All series of a study over its axis."""

    axis: str
    series: dict[tuple[str, str], ScalingCurve]
    """By dataset and label, in the order of the tables."""

    def gains(self, each: ScalingCurve) -> dict[float, pd.Series[float]]:
        """Differences to the base's series by seed, by value of the axis; of seeds that both have."""
        if each.base is None:
            return {}
        base = self.series[each.place, each.base].scores
        both = {value: (scores - base[value]).dropna() for value, scores in each.scores.items() if value in base}
        return {value: gain for value, gain in sorted(both.items()) if len(gain)}


@lru_cache(maxsize=2)
def scaling(study: Study, metric: str = "last") -> Scaling | None:
    """Return the series over the first axis of which two initialisations have three values; None without one."""
    for axis in AXES:
        series = _series(study, axis, metric)
        if any(each.base for each in series.values()):
            return Scaling(axis, series)
    return None


def _series(study: Study, axis: str, metric: str) -> dict[tuple[str, str], ScalingCurve]:
    runs = study.runs.assign(cell=study.runs["row"] + study.runs["column"], score=study.runs[METRICS[metric]])
    done = [study.contents.done[run_id] for run_id in runs["run_id"]]
    runs["value"] = [AXES[axis](run) for run in done]
    runs["base"] = [run.spec.base.model_dump_json() for run in done]
    runs["method"] = [run.spec.method.model_dump_json() if run.spec.method else "" for run in done]
    if axis == "training images":
        runs["column"] = [run.spec.dataset.model_copy(update={"train_size": None}).label for run in done]
    groups = runs.dropna(subset="value").sort_values("value", kind="stable").groupby(["column", "base", "method"])
    curves = {
        key: its
        for key in runs[["column", "base", "method"]].drop_duplicates().itertuples(index=False, name=None)
        if key in groups.groups
        # fewer are no curve; of two cells with the same value other settings differ, too
        if (its := groups.get_group(key)).value.nunique() >= LEAST_VALUES
        if (its.groupby("value")["cell"].nunique() == 1).all()
    }
    labels = {key: common_label(list(its.groupby("value")["row"].first()), axis) for key, its in curves.items()}
    found: dict[tuple[str, str], ScalingCurve] = {}
    for (place, base, method), its in curves.items():
        first = next((key for key in curves if key[0] == place and not key[2]), None)
        over = (place, base, "") if method else first
        if over in labels:
            rows: dict[float, str] = dict(its.groupby("value")["row"].first())
            scores: dict[float, pd.Series[float]] = dict(iter(its.set_index("seed").groupby("value")["score"]))
            label, its_base = labels[place, base, method], None if over == (place, base, method) else labels[over]
            found.setdefault((place, label), ScalingCurve(label, place, rows, scores, its_base))
    return found


def common_label(rows: list[str], axis: str) -> str:
    """Return the common beginning of row labels, without the axis: `Mimetic` of `Mimetic, width 48` and so on."""
    if len(set(rows)) == 1:
        return rows[0]
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*rows, strict=False))
    common = re.sub(r"[\d.]+$", "", "".join(letter for letter, *_ in same))
    return re.sub(rf"[,:\s]*({axis}|{axis.rpartition('.')[2]})?[\s=:]*$", "", common) or rows[0]


def slopes(gained: dict[float, pd.Series[float]]) -> pd.Series[float]:
    """Return the slope of the gain per doubling of the axis, by least squares at each seed that all values have."""
    import numpy as np
    import pandas as pd

    table = pd.DataFrame(gained).dropna()
    x = np.log2(np.array(table.columns, dtype=float))
    x -= x.mean()
    return pd.Series(table.to_numpy() @ x / (x @ x), index=table.index)


@TABLES.add("_scaling", lambda study: scaling(study) is not None, place=9)
def table(asked: Asked) -> Table:
    """One line per initialisation, a column per value of the axis, and the slope of the gain."""
    from vitinit.analysis.stats import paired, sample

    study, found = asked.study, scaling(asked.study, asked.metric)
    assert found
    series = found.series.values()
    several = len({each.place for each in series}) > 1
    cells: dict[tuple[str, str], TableCell] = {}
    bases, apart = {}, dict[tuple[str, str], None]()
    for each in series:
        row = each.label + f", {each.place}" * several
        base = found.series[each.place, each.base] if each.base else None
        if base:
            bases[row] = base.label + f", {each.place}" * several
            apart |= {(each.rows[value], base.rows[value]): None for value in found.gains(each)}
        for value in sorted({value for each in series for value in each.scores}):
            ours, theirs = each.scores.get(value), base.scores.get(value) if base else None
            cells[row, f"{found.axis} {value:,.10g}"] = TableCell(sample(ours), gains.compare(ours, theirs))
        gained, slope = found.gains(each), TableCell()
        if len(gained) >= LEAST_VALUES and len(by_seed := slopes(gained)):
            slope = TableCell(sample(by_seed), paired(by_seed, 0 * by_seed), signed=True)
        cells[row, "gain per doubling"] = slope
    notes = [
        "Gain: by seed, over the base at the same value of the axis, or of a base over the first base. Gain per "
        f"doubling: slope of the gain over log2 of {found.axis}, by least squares at each seed.",
        *not_initialisation_alone(study, apart),
        f"Settings and counts: table {study.name}.",
    ]
    of = f"{subject(study, asked.metric)} by {found.axis}"
    return compose(asked, cells, of, notes, baselines=bases, gain="over the base at the same value")
