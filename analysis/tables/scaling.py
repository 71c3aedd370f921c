"""Gains over a numeric axis of a study: width, depth, training length or training images."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from os.path import commonprefix
from typing import NamedTuple

import numpy as np
import pandas as pd

from vitinit.analysis.comparison import Comparison, compare, named, unnamed
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import Key, values_by_seed
from vitinit.analysis.tables.notes import not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose
from vitinit.benchmark.records.record import RunRecord

LEAST_VALUES = 3
"""Values of the axis; fewer are no curve."""
AXES: dict[str, Callable[[RunRecord], float | None]] = {
    "training images": lambda run: run.dataset.train,
    "width": lambda run: getattr(run.spec.model, "width", None),
    "depth": lambda run: getattr(run.spec.model, "depth", None),
    "epochs": lambda run: run.spec.recipe.epochs,
}
"""Axes by name, in order of preference where a study varies several at once."""


class Series(NamedTuple):
    """One initialisation over the axis."""

    label: str
    place: str
    """The column; of training images, the dataset."""
    over: str
    """Label of the series that its gains are over; empty of the first base."""
    cells: dict[float, Key]
    """Row and column, by value of the axis."""
    others: dict[float, str]
    """Rows of the other series, by value of the axis."""
    gains: dict[float, Comparison]
    """Its rows minus these."""


@lru_cache(maxsize=2)
def scaling(study: Study) -> tuple[str, list[Series]] | None:
    """Return the first axis over which two initialisations have three values, and these; None without one."""
    for axis, value_of in AXES.items():
        cells_by_x: dict[tuple[str, str, str], dict[float, list[Key]]] = defaultdict(lambda: defaultdict(list))
        for (column, row), (run, *_) in study.cells.items():
            x, spec = value_of(run), run.spec
            place = spec.dataset.at_any_size if axis == "training images" else column
            if x is not None:
                method = spec.method.model_dump_json() if spec.method else ""
                cells_by_x[place, spec.base.model_dump_json(), method][x].append((row, column))
        # fewer values are no curve; of two cells with the same value other settings differ, too
        whole = {
            key: {x: cells[0] for x, cells in sorted(values.items())}
            for key, values in cells_by_x.items()
            if len(values) >= LEAST_VALUES and all(len(cells) == 1 for cells in values.values())
        }
        series = []
        for key, cells in whole.items():
            place, base, method = key
            bases = (
                plain for plain in whole if plain[0] == place and not plain[2] and (not method or plain[1] == base)
            )
            if first := next(bases, None):
                others = {x: row for x, (row, _) in whole[first].items() if x in cells and first != key}
                gains = {
                    x: gain for x, row in others.items() if (gain := compare(study, (cells[x][0], row), cells[x][1]))
                }
                over = common_label(whole[first], axis) if first != key else ""
                series.append(Series(common_label(cells, axis), place, over, cells, others, gains))
        if any(line.over for line in series):
            return axis, series
    return None


def common_label(cells: Mapping[float, Key], axis: str) -> str:
    """Return the common beginning of row labels, without the axis: `Mimetic` of `Mimetic, width 48` and so on."""
    rows = [row for row, _ in cells.values()]
    if len(set(rows)) == 1:
        return rows[0]
    common = re.sub(r"[\d.]+$", "", commonprefix(rows))  # noqa: RUF071 - letter by letter
    return re.sub(rf"[,:\s]*({axis}|{axis.rpartition('.')[2]})?[\s=:]*$", "", common) or rows[0]


@TABLES.add("_scaling", lambda study: scaling(study) is not None, place=9)
def table(asked: Asked) -> Table:
    """Return a line per value of the axis and initialisation, and the slope of the gain."""
    study, axis_and_series = asked.study, scaling(asked.study)
    assert axis_and_series
    axis, series = axis_and_series
    several = len({line.place for line in series}) > 1
    values, cells, bases = values_by_seed(study), dict[Key, TableCell](), {}
    for line in series:
        row = line.label + f", {line.place}" * several
        if line.over:
            bases[row] = line.over + f", {line.place}" * several
        for x in sorted({x for other in series for x in other.cells}):
            cells[row, f"{axis} {x:,.10g}"] = TableCell(values.get(line.cells.get(x, ("", ""))), line.gains.get(x))
        gained, slope = pd.DataFrame({x: gain.by_seed for x, gain in line.gains.items()}).dropna(), TableCell()
        if len(gained.columns) >= LEAST_VALUES and len(gained):
            doublings = np.log2(gained.columns.to_numpy(dtype=float))
            by_seed = pd.Series(np.polyfit(doublings, gained.T.to_numpy(), 1)[0], gained.index)
            of_grid = (slope for slope in named(study).values() if slope.by_seed.round(6).equals(by_seed.round(6)))
            slope = TableCell(by_seed, next(of_grid, unnamed(row, by_seed)), signed=True)
        cells[row, "gain per doubling"] = slope
    pairs = [(line.cells[x][0], line.others[x]) for line in series for x in line.gains]
    notes = [
        "Gain: by seed, over the base at the same value of the axis, or of a base over the first base. Gain per "
        f"doubling: slope of the gain over log2 of {axis}, by least squares at each seed.",
        *not_initialisation_alone(study, dict.fromkeys(pairs)),
        f"Settings and counts: table {study.name}.",
    ]
    shown = {
        (f"{column}: {row}", ""): cells[row, column]
        for column in dict.fromkeys(column for _, column in cells)
        for row in dict.fromkeys(row for row, _ in cells)
        if cells[row, column].ours
    }
    of = f"{subject(study)} by {axis}"
    return compose(asked, cells, of, notes, baselines=bases, gain="over the base at the same value", shown=shown)
