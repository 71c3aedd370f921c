"""Gains over a numeric axis of a study: width, depth, training length or training images."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

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
MORE_TRAINING = ("training images", "epochs")
"""Axes along which a base may catch up."""


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

    @property
    def values(self) -> list[float]:
        """Values of the axis, in order."""
        return sorted({value for each in self.series.values() for value in each.scores})

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
    cells: dict[tuple[str, str], dict[float, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    starts: dict[str, tuple[bool, str]] = {}
    for (column, row), runs in study.cells.items():
        for run in runs:
            value = AXES[axis](run)
            dataset = run.spec.dataset
            place = dataset.model_copy(update={"train_size": None}).label if axis == "training images" else column
            start = run.spec.base.model_dump_json() + (run.spec.method.model_dump_json() if run.spec.method else "")
            starts[start] = run.spec.method is None, run.spec.base.model_dump_json()
            if value is not None:
                cells[place, start][value].add((row, column))
    scores = study.runs.set_index(["row", "column", "seed"]).sort_index()[METRICS[metric]]
    curves = {
        key: {value: next(iter(its)) for value, its in sorted(by_value.items())}
        for key, by_value in cells.items()
        # fewer are no curve; of two cells with the same value other settings differ, too
        if len(by_value) >= LEAST_VALUES and all(len(its) == 1 for its in by_value.values())
    }
    labels = {key: common_label([row for row, _ in where.values()], axis) for key, where in curves.items()}
    found: dict[tuple[str, str], ScalingCurve] = {}
    for (place, start), where in curves.items():
        plain, base = starts[start]
        first = next((key for key in curves if key[0] == place and starts[key[1]][0]), (place, start))
        over = first if plain else (place, base)
        if over in labels:
            by_seed: dict[float, pd.Series[float]] = {value: scores.loc[its] for value, its in where.items()}
            rows = {value: row for value, (row, _) in where.items()}
            label = labels[place, start]
            its_base = None if over == (place, start) else labels[over]
            found.setdefault((place, label), ScalingCurve(label, place, rows, by_seed, its_base))
    return found


def common_label(rows: list[str], axis: str) -> str:
    """Return the common beginning of row labels, without the axis: `Mimetic` of `Mimetic, width 48` and so on."""
    if len(set(rows)) == 1:
        return rows[0]
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*rows, strict=False))
    common = re.sub(r"[\d.]+$", "", "".join(letter for letter, *_ in same))
    return re.sub(rf"[,:\s]*({axis}|{axis.rpartition('.')[2]})?[\s=:]*$", "", common) or rows[0]


def text_of(value: float) -> str:
    """Write a value of the axis: `5,000`."""
    return f"{value:,.10g}"


def slopes(gains: dict[float, pd.Series[float]]) -> pd.Series[float]:
    """Return the slope of the gain per doubling of the axis, by least squares at each seed that all values have."""
    import numpy as np
    import pandas as pd

    table = pd.DataFrame(gains).dropna()
    x = np.log2(np.array(table.columns, dtype=float))
    x -= x.mean()
    return pd.Series(table.to_numpy() @ x / (x @ x), index=table.index)


def catches_up(score: float, base: dict[float, float]) -> float | None:
    """Return where on the axis the base has this score, interpolated over its logarithm.

    Minus infinity: in front of its first value; None: nowhere that was run.
    """
    points = sorted(base.items())
    if points[0][1] >= score:
        return -math.inf
    for (x, low), (further, high) in itertools.pairwise(points):
        if low < score <= high:
            return 2 ** (math.log2(x) + (score - low) / (high - low) * math.log2(further / x))
    return None


@TABLES.add("_scaling", lambda study: scaling(study) is not None, place=9)
def table(asked: Asked) -> Table:
    """One line per initialisation, a column per value of the axis, and the slope of the gain."""
    from vitinit.analysis.stats import paired, sample

    study, found = asked.study, scaling(asked.study, asked.metric)
    assert found
    several = len({place for place, _ in found.series}) > 1
    cells: dict[tuple[str, str], TableCell] = {}
    bases, caught, apart = {}, [], dict[tuple[str, str], None]()
    for each in found.series.values():
        row = f"{each.label}, {each.place}" if several else each.label
        base = found.series[each.place, each.base] if each.base else None
        if base:
            bases[row] = f"{each.base}, {each.place}" if several else base.label
        for value in found.values:
            scores, theirs = each.scores.get(value), base.scores.get(value) if base else None
            pair = paired(scores, theirs) if scores is not None and theirs is not None else None
            if pair and base:
                apart[each.rows[value], base.rows[value]] = None
            cells[row, f"{found.axis} {text_of(value)}"] = TableCell(sample(scores), pair)
        gains, slope = found.gains(each), TableCell()
        if len(gains) >= LEAST_VALUES and len(by_seed := slopes(gains)):
            slope = TableCell(sample(by_seed), paired(by_seed, 0 * by_seed), signed=True)
        cells[row, "gain per doubling"] = slope
        if base and found.axis in MORE_TRAINING:
            caught.append(_caught(row, each, base, found.axis))
    notes = [
        "Gain: by seed, over the base at the same value of the axis, or of a base over the first base. Gain per "
        f"doubling: slope of the gain over log2 of {found.axis}, by least squares at each seed.",
        *caught,
        *not_initialisation_alone(study, list(apart)),
        f"Settings and counts: table {study.name}.",
    ]
    of = f"{subject(study, asked.metric)} by {found.axis}"
    return compose(asked, cells, of, notes, baselines=bases, gain="over the base at the same value")


def _caught(row: str, each: ScalingCurve, base: ScalingCurve, axis: str) -> str:
    """Say how much of the axis the base needs for the scores of a series (between its values: interpolated).

    The interval goes from the smallest to the largest need of one seed.
    """
    least, most = (text_of(end(base.scores)) for end in (min, max))

    def written(place: float | None) -> str:
        if place is None:
            return f"more than {most}"
        return f"at most {least}" if place == -math.inf else text_of(round(place))

    means = {value: float(its.mean()) for value, its in base.scores.items()}
    parts = []
    for value, scores in each.scores.items():
        by_seed = []
        for seed, score in zip(scores.index.tolist(), scores.tolist(), strict=True):
            own = {where: float(its.loc[seed]) for where, its in base.scores.items() if seed in its.index}
            if len(own) == len(base.scores):
                by_seed.append(catches_up(float(score), own))
        by_seed.sort(key=lambda place: math.inf if place is None else place)
        ends = dict.fromkeys(written(by_seed[end]) for end in (0, -1)) if by_seed else {}
        between = f" (by seed {' to '.join(ends)})" if len(ends) > 1 else ""
        parts.append(f"{text_of(value)}: {written(catches_up(float(scores.mean()), means))}{between}")
    return f"{row}: {axis} that {base.label} needs for its mean score at {', at '.join(parts)} (interpolated)."
