"""Scores and gains over a number: training images, width, depth, epochs, or a field of one's choice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vitinit.analysis.figures.gains import by_seed, own_pairs
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import (
    INTERVAL,
    file_part,
    finish,
    looks,
    present,
    score_name,
    seeds,
    size,
    t_interval,
    ticks,
    title_of_scores,
)
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.scaling import AXES, common_label, scaling
from vitinit.analysis.text import count
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.settings import named_fields
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import pandas as pd
    from seaborn import FacetGrid


def lines(data: pd.DataFrame, x: str, y: str, title: str, order: list[str], zero: bool = False) -> FacetGrid:
    """Draw means with intervals over a number, a panel per `column`, a line per `row`.

    Args:
        data: With columns `x`, `value`, `row`, `column` and `seed`.
        x: Name of the axis.
        y: Name of the values.
        title: Of the figure.
        order: Of rows.
        zero: Whether a line marks 0.
    """
    import seaborn as sns

    columns, rows = list(dict.fromkeys(data["column"])), present(order, data["row"])
    grid = sns.relplot(
        data,
        kind="line",
        x="x",
        y="value",
        hue="row",
        style="row",
        col="column",
        col_order=columns,
        errorbar=t_interval,
        err_style="bars",
        facet_kws={"sharey": False, "legend_out": False},
        **looks(rows),
        **size(len(columns), 2.5, 2),
    )
    ticks(grid, data["x"], log=True)
    for axes in grid.axes.flat:
        axes.tick_params(axis="x", rotation=30 if max(data["x"]) >= 1000 else 0)
        if zero or "= gain" in axes.get_title():
            axes.axhline(0, color="black", linewidth=0.8)
    grid.set_axis_labels(x, y)
    titles = {column: f"{column}: {seeds(its, 'row', 'x')}" for column, its in data.groupby("column")}
    return finish(grid, title, INTERVAL, titles)


def several_sizes(study: Study) -> dict[str, pd.DataFrame]:
    """Return runs of each dataset that has several sizes of the training split, by what their panel is called."""
    runs, names = study.runs, []
    for run_id, column, label in zip(runs["run_id"], runs["column"], runs["dataset_label"], strict=True):
        dataset = study.contents.done[run_id].spec.dataset
        # what tells settings apart stands behind the dataset's label
        names.append(dataset.model_copy(update={"train_size": None}).label + column.removeprefix(label))
    by_name = {str(name): its for name, its in runs.groupby(names, sort=False)}
    return {name: its for name, its in by_name.items() if its["train_images"].nunique() > 1}


@FIGURES.add(
    "train_size",
    "no dataset with several train sizes",
    caption="Where lines meet on the right, more images make the difference vanish.",
    place=2,
)
def train_size(study: Study) -> dict[str, FacetGrid]:
    """Draw the score after the last epoch over the number of training images, where a dataset has several."""
    import pandas as pd

    sizes = several_sizes(study)
    if not sizes:
        return {}
    data = pd.concat(
        [runs.assign(column=name, x=runs["train_images"], value=runs["score"]) for name, runs in sizes.items()]
    )
    data = data[["column", "row", "seed", "x", "value"]].reset_index(drop=True)
    title = f"{title_of_scores(study)} over training images"
    return {"train_size": lines(data, "training images", f"{score_name(study.runs)} (%)", title, study.rows)}


@FIGURES.add(
    "scaling",
    "no initialisation at three widths, depths, lengths or sizes of training set beside its base",
    caption="A gain that falls towards 0 on the right is a head start; one that stays is a higher end.",
    place=12,
)
def gains_over_axis(study: Study) -> dict[str, FacetGrid]:
    """Draw the gain by seed over the axis: a panel per dataset, a line per initialisation."""
    import pandas as pd

    found = scaling(study)
    if not found:
        return {}
    data = pd.DataFrame(
        [
            (each.place, f"{each.label} − {each.base}", seed, value, gain)
            for each in found.series.values()
            for value, gains in found.gains(each).items()
            for seed, gain in gains.items()
        ],
        columns=["column", "row", "seed", "x", "value"],
    )
    y, order = f"difference in {score_name(study.runs)} (points)", list(dict.fromkeys(data["row"]))
    return {"scaling": lines(data, found.axis, y, f"Gain over {found.axis}", order, zero=True)}


def over(study: Study, field: str) -> dict[str, FacetGrid]:
    """Draw score and gain over a field that the study has several numbers of.

    Raises:
        VitinitError: it has not, or other settings differ with it.
    """
    field = "training images" if field == "images" else field
    runs = study.contents.done
    values = {run_id: _number(run, field) for run_id, run in runs.items()}
    data = study.runs.assign(x=study.runs["run_id"].map(values), value=study.runs["score"]).dropna(subset="x")
    if data["x"].nunique() < 2:
        said = f"study {study.name!r}: {field} has {count(data['x'].nunique(), 'number')}"
        raise VitinitError(f"{said}, and a curve needs two. Name a field that the study varies, as lr or width")
    starts = data["run_id"].map({run_id: _start(run, field) for run_id, run in runs.items()})
    labels = data["row"].groupby(starts).agg(lambda rows: common_label(list(dict.fromkeys(rows)), field))
    keys = ["place", "label", "seed", "x"]
    data = data.assign(label=starts.map(labels), place=_without(data, field))
    if data.duplicated(keys).any():  # rows of one start differ in something else
        data = data.assign(label=data["row"])
    if data.duplicated(keys).any():
        raise VitinitError(f"study {study.name!r}: other settings differ together with {field}. Choose another field")
    gains = data.drop(columns="value").merge(
        by_seed(study, own_pairs(study)).drop(columns="label"), on=["column", "row", "seed"]
    )
    figures, name = {}, f"over-{file_part(field)}"
    for its, end, title, unit in (
        (data, "", f"{title_of_scores(study)} over {field}", f"{score_name(study.runs)} (%)"),
        (
            gains.assign(value=gains["gain"]),
            "-gain",
            f"Gain over {field}",
            f"gain in {score_name(study.runs)} (points)",
        ),
    ):
        if len(its):
            tidy = its.assign(row=its["label"], column=its["place"])[["column", "row", "seed", "x", "value"]]
            order = list(dict.fromkeys(tidy["row"]))
            figures[name + end] = lines(tidy.reset_index(drop=True), field, unit, title, order, zero=bool(end))
    return figures


def _without(data: pd.DataFrame, field: str) -> pd.Series[str]:
    """Return the columns of runs without the value of a field: `cifar10 (width 48)` of `cifar10 (lr 0.1, width 48)`."""
    if field == "training images":
        return data["dataset"]
    rest = data["column"].str.replace(rf"(, )?\b{re.escape(field.rpartition('.')[2])} [^,()]+", "", regex=True)
    return rest.str.replace("(, ", "(", regex=False).str.replace(" ()", "", regex=False)


def _start(run: RunRecord, field: str) -> str:
    """Return base and method without a parameter."""
    method = run.spec.method
    params = {name: value for name, value in method.params.items() if name != field} if method else {}
    return f"{run.spec.base.model_dump_json()} {method.name if method else ''} {params}"


def _number(run: RunRecord, field: str) -> float | None:
    if field in AXES and (value := AXES[field](run)) is not None:
        return value  # a model by name has its width among its arguments
    try:
        return float(named_fields(run.spec)[field])
    except (KeyError, ValueError):
        return None
