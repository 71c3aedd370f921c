"""Gains over a numeric axis of a study: width, depth, training length or training images."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from vitinit.analysis.comparison import compare, unnamed
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import METRICS
from vitinit.analysis.tables.notes import not_initialisation_alone, subject
from vitinit.analysis.tables.registry import TABLES
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


@lru_cache(maxsize=2)
def scaling(study: Study, metric: str = "last") -> tuple[str, pd.DataFrame] | None:
    """Return the first axis over which two initialisations have three values, and their runs; None without one.

    Beside a run's `row`, `column` (of training images: the dataset), `seed` and `score` stand `x` on the axis, the
    `label` of its initialisation and that of the one which gains are `over` (none for that one itself), its row and
    score at this x and seed (`base_row`, `base_score`), and the `gain`.
    """
    for axis in AXES:
        runs = _series(study, axis, metric)
        if runs["over"].notna().any():
            return axis, runs
    return None


def _series(study: Study, axis: str, metric: str) -> pd.DataFrame:
    done = [study.contents.done[run_id] for run_id in study.runs["run_id"]]
    runs = study.runs.assign(
        cell=study.runs["row"] + study.runs["column"],
        score=study.runs[METRICS[metric]],
        base=[run.spec.base.model_dump_json() for run in done],
        method=[run.spec.method.model_dump_json() if run.spec.method else "" for run in done],
    )
    runs["x"], runs["place"] = [AXES[axis](run) for run in done], runs["column"]
    if axis == "training images":
        runs["column"] = [run.spec.dataset.model_copy(update={"train_size": None}).label for run in done]
    runs["series"] = runs.groupby(["column", "base", "method"], sort=False).ngroup()
    runs = runs.dropna(subset="x").sort_values(["series", "x", "seed"])
    # fewer values are no curve; of two cells with the same value other settings differ, too
    runs["cells"] = runs.groupby(["series", "x"])["cell"].transform("nunique")
    series = runs.groupby("series")
    runs = runs[(series["x"].transform("nunique") >= LEAST_VALUES) & (series["cells"].transform("max") == 1)]
    labels = {number: common_label(list(rows), axis) for number, rows in runs.groupby("series")["row"]}
    plain = runs[runs["method"] == ""]
    own, first = plain.groupby(["column", "base"])["series"].min(), plain.groupby("column")["series"].min()
    where = zip(runs["column"], runs["base"], runs["method"], strict=True)
    runs["of"] = [own.get((column, base)) if method else first[column] for column, base, method in where]
    runs = runs.dropna(subset="of")
    itself = runs["of"] == runs["series"]
    base = plain[["series", "x", "seed", "row", "score"]]
    base = base.rename(columns={"series": "of", "row": "base_row", "score": "base_score"})
    runs = runs.assign(
        label=runs["series"].map(labels), over=runs["of"].map(labels).mask(itself), of=runs["of"].mask(itself)
    )
    runs = runs.merge(base, on=["of", "x", "seed"], how="left")
    sign = -1 if study.lower_is_better else 1
    return runs.assign(gain=sign * (runs["score"] - runs["base_score"]))


def common_label(rows: list[str], axis: str) -> str:
    """Return the common beginning of row labels, without the axis: `Mimetic` of `Mimetic, width 48` and so on."""
    if len(set(rows)) == 1:
        return rows[0]
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*rows, strict=False))
    common = re.sub(r"[\d.]+$", "", "".join(letter for letter, *_ in same))
    return re.sub(rf"[,:\s]*({axis}|{axis.rpartition('.')[2]})?[\s=:]*$", "", common) or rows[0]


@TABLES.add("_scaling", lambda study: scaling(study) is not None, place=9)
def table(asked: Asked) -> Table:
    """One line per initialisation, a column per value of the axis, and the slope of the gain."""
    import numpy as np
    import pandas as pd

    from vitinit.analysis.stats import sample

    study, found = asked.study, scaling(asked.study, asked.metric)
    assert found
    axis, runs = found
    several = runs["column"].nunique() > 1
    cells: dict[tuple[str, str], TableCell] = {}
    bases = {}
    for (_, label, place), its in runs.groupby(["series", "label", "column"]):
        row = f"{label}" + f", {place}" * several
        if its["over"].notna().all():
            bases[row] = its["over"].iloc[0] + f", {place}" * several
        for x in sorted(set(runs["x"])):
            here = its[its["x"] == x].set_index("seed")
            gain, paired = None, here.dropna(subset="gain")
            if len(paired):
                row_here, over, column = paired.iloc[0][["row", "base_row", "place"]]
                gain = compare(study, (row_here, over), column, metric=asked.metric)
            cells[row, f"{axis} {x:,.10g}"] = TableCell(sample(here["score"]), gain)
        gained, slope = its.pivot(index="seed", columns="x", values="gain").dropna(axis=1, how="all"), TableCell()
        if len(gained.columns) >= LEAST_VALUES and len(gained := gained.dropna()):
            doublings = np.log2(gained.columns.to_numpy(dtype=float))
            by_seed = pd.Series(np.polyfit(doublings, gained.T.to_numpy(), 1)[0], gained.index)
            slope = TableCell(sample(by_seed), unnamed(row, by_seed), signed=True)
        cells[row, "gain per doubling"] = slope
    gains = runs.dropna(subset="gain")
    notes = [
        "Gain: by seed, over the base at the same value of the axis, or of a base over the first base. Gain per "
        f"doubling: slope of the gain over log2 of {axis}, by least squares at each seed.",
        *not_initialisation_alone(study, dict.fromkeys(zip(gains["row"], gains["base_row"], strict=True))),
        f"Settings and counts: table {study.name}.",
    ]
    of = f"{subject(study, asked.metric)} by {axis}"
    return compose(asked, cells, of, notes, baselines=bases, gain="over the base at the same value")
