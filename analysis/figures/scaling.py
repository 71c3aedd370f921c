"""Scores and gains over a number: training images, width, depth, epochs, or a field of one's choice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vitinit.analysis.figures.gains import by_seed, gain_name, own_pairs
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import (
    INTERVAL,
    file_part,
    finish,
    looks,
    panels,
    present,
    score_name,
    t_interval,
    ticks,
    with_seeds,
)
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.scaling import AXES, scaling
from vitinit.analysis.text import capitalised, count
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.settings import named_fields
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import pandas as pd
    from seaborn import FacetGrid


def lines(data: pd.DataFrame, x: str, y: str, title: str, order: list[str] | None = None) -> FacetGrid:
    """Draw means with intervals over a number, a panel per `column`, a line per `row`.

    Args:
        data: With columns `x`, `value`, `row`, `column` and `seed`.
        x: Name of the axis.
        y: Name of the values; of a gain, a line marks 0.
        title: Of the figure.
        order: Of rows. Default: as they come.
    """
    import seaborn as sns

    data = data[["column", "row", "seed", "x", "value"]].reset_index(drop=True)
    columns = list(dict.fromkeys(data["column"]))
    grid = sns.relplot(
        data,
        x="x",
        y="value",
        hue="row",
        style="row",
        col="column",
        col_order=columns,
        errorbar=t_interval,
        err_style="bars",
        facet_kws={"sharey": False, "legend_out": False},
        **looks(present(order or dict.fromkeys(data["row"]), data["row"])),
        **panels(len(columns), 2.5, 2),
    )
    ticks(grid, data["x"], log=True)
    for column, axes in grid.axes_dict.items():
        if "gain" in (y + column).lower():
            axes.axhline(0, color="black", linewidth=0.8)
    grid.set_axis_labels(x, y)
    return finish(grid, title, INTERVAL, with_seeds(data, "row", "x"))


def several_sizes(study: Study) -> dict[str, pd.DataFrame]:
    """Return runs of each dataset that has several sizes of the training split, by what their panel is called."""
    runs, names = study.runs, []
    for run_id, column, label in zip(runs["run_id"], runs["column"], runs["dataset_label"], strict=True):
        dataset = study.contents.done[run_id].spec.dataset
        # what tells settings apart stands behind the dataset's label
        names.append(dataset.model_copy(update={"train_size": None}).label + column.removeprefix(label))
    runs = runs.assign(x=runs["train_images"], value=runs["score"])
    by_name = {str(name): its.assign(column=str(name)) for name, its in runs.groupby(names, sort=False)}
    return {name: its for name, its in by_name.items() if its["x"].nunique() > 1}


@FIGURES.add(
    "train_size",
    "no dataset with several train sizes",
    caption="Where lines meet on the right, more images make the difference vanish.",
    place=2,
)
def train_size(study: Study) -> dict[str, FacetGrid]:
    """Draw the score after the last epoch over the number of training images, where a dataset has several."""
    import pandas as pd

    if not (sizes := several_sizes(study)):
        return {}
    score = score_name(study.runs)
    title = f"{capitalised(score)} over training images"
    return {"train_size": lines(pd.concat(sizes.values()), "training images", f"{score} (%)", title, study.rows)}


@FIGURES.add(
    "scaling",
    "no initialisation at three widths, depths, lengths or sizes of training set beside its base",
    caption="A gain that falls towards 0 on the right is a head start; one that stays is a higher end.",
    place=12,
)
def gains_over_axis(study: Study) -> dict[str, FacetGrid]:
    """Draw the gain by seed over the axis: a panel per dataset, a line per initialisation."""
    if not (found := scaling(study)):
        return {}
    sign = -1 if study.lower_is_better else 1
    data = found[1].dropna(subset="gain")
    data = data.assign(row=data["label"] + " − " + data["over"], value=sign * data["gain"])
    return {"scaling": lines(data, found[0], gain_name(study), f"Gain over {found[0]}")}


def over(study: Study, field: str) -> dict[str, FacetGrid]:
    """Draw score and gain over a field that the study has several numbers of.

    Labels of rows and columns lose the field and its value, so `Mimetic, width 48` and `Mimetic, width 96` are a line.

    Raises:
        VitinitError: it has not, or other settings differ with it.
    """
    field = "training images" if field == "images" else field
    numbers = {run_id: _number(run, field) for run_id, run in study.contents.done.items()}
    data = study.runs.assign(x=study.runs["run_id"].map(numbers)).dropna(subset="x").rename(columns={"score": "value"})
    if data["x"].nunique() < 2:
        said = f"study {study.name!r}: {field} has {count(data['x'].nunique(), 'number')}"
        raise VitinitError(f"{said}, and a curve needs two. Name a field that the study varies, as lr or width")
    gains = by_seed(study, own_pairs(study)).rename(columns={"gain": "value"})[["column", "row", "seed", "value"]]
    gains = data.drop(columns="value").merge(gains, on=["column", "row", "seed"])
    name, score = f"over-{file_part(field)}", score_name(study.runs)
    drawn = {
        name: (data, f"{score} (%)", f"{capitalised(score)} over {field}"),
        f"{name}-gain": (gains, gain_name(study), f"Gain over {field}"),
    }
    figures = {}
    for file, (its, y, title) in drawn.items():
        its = its.assign(row=_without(its["row"], field), column=_without(its["column"], field))
        if field == "training images":
            its["column"] = its["dataset"]
        if its.duplicated(["column", "row", "seed", "x"]).any():
            raise VitinitError(f"study {study.name!r}: other settings differ together with {field}. Choose another")
        if len(its):
            figures[file] = lines(its, field, y, title)
    return figures


def _without(labels: pd.Series[str], field: str) -> pd.Series[str]:
    """Return labels without a field: `digits (width 48)` of `digits (lr 0.1, width 48)`, `A` of `A, 80 epochs`."""
    name = re.escape(field.rpartition(".")[2])
    rest = labels.str.replace(rf"(, )?\b({name} [^,()]+|[\d.e+-]+ {name}\b)", "", regex=True)
    return rest.str.replace("(, ", "(", regex=False).str.replace(" ()", "", regex=False)


def _number(run: RunRecord, field: str) -> float | None:
    if field in AXES and (value := AXES[field](run)) is not None:
        return value  # a model by name has its width among its arguments
    try:
        return float(named_fields(run.spec)[field])
    except (KeyError, ValueError):
        return None
