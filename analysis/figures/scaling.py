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
from vitinit.analysis.tables.scaling import AXES, common_label, scaling
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
    import pandas as pd

    if not (found := scaling(study)):
        return {}
    sign = -1 if study.lower_is_better else 1
    gains = [
        (each.place, f"{each.label} − {each.base}", seed, value, sign * gain)
        for each in found.series.values()
        for value, by_seed in found.gains(each).items()
        for seed, gain in by_seed.items()
    ]
    data = pd.DataFrame(gains, columns=["column", "row", "seed", "x", "value"])
    return {"scaling": lines(data, found.axis, gain_name(study), f"Gain over {found.axis}")}


def over(study: Study, field: str) -> dict[str, FacetGrid]:
    """Draw score and gain over a field that the study has several numbers of.

    Raises:
        VitinitError: it has not, or other settings differ with it.
    """
    field = "training images" if field == "images" else field
    runs = study.contents.done
    data = study.runs.assign(x=study.runs["run_id"].map({run_id: _number(run, field) for run_id, run in runs.items()}))
    data = data.dropna(subset="x").rename(columns={"score": "value"})
    if data["x"].nunique() < 2:
        said = f"study {study.name!r}: {field} has {count(data['x'].nunique(), 'number')}"
        raise VitinitError(f"{said}, and a curve needs two. Name a field that the study varies, as lr or width")
    starts = data["run_id"].map({run_id: _start(run, field) for run_id, run in runs.items()})
    data["label"] = data.groupby(starts)["row"].transform(lambda rows: common_label(list(dict.fromkeys(rows)), field))
    data["place"] = _without(data, field)
    for labels in (data["label"], data["row"]):  # rows of one start may differ in something else
        data["label"] = labels
        if not data.duplicated(["place", "label", "seed", "x"]).any():
            break
    else:
        raise VitinitError(f"study {study.name!r}: other settings differ together with {field}. Choose another field")
    gains = by_seed(study, own_pairs(study)).rename(columns={"gain": "value"})[["column", "row", "seed", "value"]]
    gains = data.drop(columns="value").merge(gains, on=["column", "row", "seed"])
    name, score = f"over-{file_part(field)}", score_name(study.runs)
    drawn = {
        name: (data, f"{score} (%)", f"{capitalised(score)} over {field}"),
        f"{name}-gain": (gains, gain_name(study), f"Gain over {field}"),
    }
    return {
        file: lines(its.assign(row=its["label"], column=its["place"]), field, y, title)
        for file, (its, y, title) in drawn.items()
        if len(its)
    }


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
