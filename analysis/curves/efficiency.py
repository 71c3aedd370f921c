"""Accuracy over the number of training images, and what a row gains on its base (Figure 2a of arXiv 2103.10697)."""

import pandas as pd

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.scaling import over_numbers
from vitinit.analysis.figures.style import Panels, file_part, score_name
from vitinit.analysis.frame import Study
from vitinit.analysis.stats import student
from vitinit.analysis.tables.convit import gap_bases


def several_sizes(study: Study) -> dict[str, pd.DataFrame]:
    """Return runs of each dataset that has several sizes of the training split, by what their panel is called."""
    runs = study.runs
    names = [  # what tells settings apart stands behind the dataset's label
        study.contents.done[run_id].spec.dataset.model_copy(update={"train_size": None}).label
        + column.removeprefix(label)
        for run_id, column, label in runs[["run_id", "column", "dataset_label"]].itertuples(index=False)
    ]
    runs = runs.assign(x=runs["train_images"], value=runs["score"], column=names)
    return {str(name): group for name, group in runs.groupby("column", sort=False) if group["x"].nunique() > 1}


@CURVES.add(
    "sample_efficiency",
    "no dataset with several train sizes, of a method and its base",
    caption="A gain that falls from left to right shrinks as data grow.",
)
def sample_efficiency(study: Study) -> dict[str, Panels]:
    """Draw the score and its gain in percent of the base's (Figure 2a), for each dataset with several train sizes.

    Gains are by seed: the score over the base's of the same seed and size, minus 1.
    """

    bases, figures = gap_bases(study), {}
    for name, runs in several_sizes(study).items():
        theirs = runs.loc[runs["value"] > 0, ["row", "x", "seed", "value"]]
        ours = runs.assign(base=runs["row"].map(bases)).dropna(subset="base")
        both = ours.merge(theirs, left_on=["base", "x", "seed"], right_on=["row", "x", "seed"], suffixes=("", "_base"))
        if len(both):
            gains = both.assign(
                column="gain relative to the base (%)", value=100 * (both["value"] / both["value_base"] - 1)
            )
            data = pd.concat([runs.assign(column=f"{score_name(runs)} (%)"), gains])
            data = data[["column", "row", "seed", "x", "value"]]
            points = data.groupby(["column", "row", "x"])["value"]
            data = data.join(points.agg(low=lambda x: student(x).low, high=lambda x: student(x).high), on=points.keys)
            title = f"Sample efficiency, {study.heads[0] or name}"
            figure = over_numbers(study, data, "training images", "", title, study.rows)
            figures[f"sample_efficiency-{file_part(name)}"] = figure
    return figures
