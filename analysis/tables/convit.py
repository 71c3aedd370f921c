"""ConViT's tables: accuracy by training images (its Table 2), by switches (Table 3), without a term (Table 6)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from vitinit.analysis.frame import Study
from vitinit.analysis.published import FOLDER, publication
from vitinit.analysis.rows import Key, baselines_of, own_bases, plain_rows, published_numbers, values_by_seed
from vitinit.analysis.tables.notes import beside, subject
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose
from vitinit.initializers.errors import count

LEAST_SIZES = 3
"""Sizes of the training set; fewer are no curve."""
METHOD = "convit_gpsa"
PARAMETERS = {"train gating": "train_gating", "conv init": "conv_init", "train GPSA": "train_gpsa"}
"""By label; each is on unless a record says otherwise."""
PAPER = ("2103.10697", "Table 6")


def subsets(study: Study) -> list[str]:
    """Return the columns of datasets with training sets of several sizes."""
    sizes = study.runs.groupby("dataset")["train_images"].transform("nunique")
    return [place for place in study.columns if place in set(study.runs["column"][sizes >= LEAST_SIZES])]


def gap_bases(study: Study) -> dict[str, str]:
    """Return the row that each row's gap is to: the baseline, or its own base.

    A method whose own base is not in the study (ConViT's would be a ConViT without local initialisation) has its gap to
    the first row without a method, as in ConViT's Table 2, where that is DeiT.
    """
    if study.baseline:
        return baselines_of(study)
    plain = plain_rows(study)
    return {row: plain[0] for row in study.rows if plain and row not in plain} | own_bases(study)


def gaps(study: Study) -> dict[Key, pd.Series[float]]:
    """Return the gap of each row to its base by row and column, at each seed, in percent of the base's score.

    It is positive where the row is better, even of an error metric.
    """
    bases, values, gaps = gap_bases(study), values_by_seed(study), dict[Key, Any]()
    for (row, place), ours in values.items():
        theirs = values.get((bases.get(row, ""), place))
        if theirs is not None:  # divided by seed; one that only one side has gives NaN
            sign = -100 if place in study.lower_is_better else 100
            gaps[row, place] = (sign * (ours / theirs.where(theirs > 0) - 1)).dropna()
    return gaps


@TABLES.add("_gap", lambda study: bool({place for _, place in gaps(study)} & set(subsets(study))), place=4)
def gap(asked: Asked) -> Table:
    """Return a line per training set: accuracy, and the gap to the base."""
    study, bases, values = asked.study, gap_bases(asked.study), values_by_seed(asked.study)
    by_seed, cells = gaps(study), dict[Key, TableCell]()
    for place in subsets(study):
        for row in [*(row for row in study.rows if row not in bases), *bases]:
            cells[place, row] = TableCell(values.get((row, place)))
            if row in bases:
                cells[place, f"{row}: gap (%)"] = TableCell(by_seed.get((row, place)), signed=True)
    what = f"{subject(study)} and its gap in percent of the base's"
    return compose(asked, cells, what, [*study.note("gap", bases=bases), *beside(study, cells)])


def switched(study: Study) -> bool:
    """Return True if a finished run has any of them off."""
    methods = [run.spec.method for run in study.contents.done.values()]
    convits = (method for method in methods if method and method.name == METHOD)
    return any(convit.params.get(name) is False for convit in convits for name in PARAMETERS.values())


@TABLES.add("_switches", switched, place=5)
def switches(asked: Asked) -> Table:
    """Return the switches of ConViT of each row beside its accuracy; placebos of its start are left out."""
    study, values = asked.study, values_by_seed(asked.study)
    published, cells = published_numbers(study), dict[Key, TableCell]()
    for row in study.rows:
        spec = study.examples[row, None]
        method, gated = spec.method, spec.model.gated_layers > 0
        if method and method.name == "placebo" and method.params["of"]["name"] == METHOD:
            continue
        params = method.params if method and method.name == METHOD else {"conv_init": False}
        for label, parameter in PARAMETERS.items():
            cells[row, label] = TableCell(switch=gated and bool(params.get(parameter, True)))
        cells[row, "use GPSA"] = TableCell(switch=gated)
        for place in study.columns:
            cells[row, place] = TableCell(values.get((row, place)), published=published.get((row, place)))
    notes = [
        "Without train gating the gates stay as they start; without conv init W_v and positional attention start as "
        "the base has them; without train GPSA all attention of the GPSA layers stays as it starts; without use GPSA "
        "there are no such layers. Placebos are left out. Settings, differences, tests and counts: table "
        f"{study.name}.",
        *beside(study, cells),
    ]
    return compose(asked, cells, f"{subject(study)} by what of ConViT is switched on", notes)


@TABLES.add("_masked", lambda study: any(run.masked for run in study.contents.done.values()), place=6)
def masking(asked: Asked) -> Table:
    """Return the accuracy of trained ConViTs without content or positional attention."""
    study = asked.study
    tested = {key: masked for key, runs in study.cells.items() if (masked := [run for run in runs if run.masked])}
    several = len({column for column, _ in tested}) > 1
    lines = []
    for (column, row), runs in tested.items():
        label = row + f", {column}" * several
        for run in runs:
            lines.append((label, 0, "", run.masked[0].top1_whole))
            for test in run.masked:
                lines.append((label, round(100 * test.layers / run.spec.model.gated_layers), test.term, test.top1))
    scores = pd.DataFrame(lines, columns=["row", "share", "term", "top1"])
    cells = {
        (str(row), f"no {term}, {share}%" if share else "whole"): TableCell(by_run)
        for (share, term), tests in scores.groupby(["share", "term"])
        for row, by_run in tests.groupby("row", sort=False)["top1"]
    }
    runs = [run for cell in tested.values() for run in cell]
    splits = {"test": "test", "val": "validation"}
    images = sorted({f"{test.images} {splits[run.spec.dataset.evaluate_on]}" for run in runs for test in run.masked})
    notes = [
        "Without content the first GPSA layers, so many per cent of all of them, attend by position alone, without "
        "position by content alone; nothing is trained in between. The images are the same in every run. Settings and "
        f"counts: table {study.name}.",
        *beside(study, cells, (publication(PAPER[0]), PAPER[1]) if FOLDER.is_dir() else None),
    ]
    what = f"Top-1 accuracy (%) of {count(len(runs), 'trained ConViT')} on {' or '.join(images)} images"
    return compose(asked, cells, f"{what} without content or positional attention in the first GPSA layers", notes)
