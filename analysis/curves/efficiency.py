"""Accuracy over the number of training images, and what a row gains on its base (Figure 2a of arXiv 2103.10697)."""

import pandas as pd

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.scaling import over_numbers
from vitinit.analysis.figures.style import Panels, file_part
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import values_by_seed
from vitinit.analysis.stats import student
from vitinit.analysis.tables.convit import gaps


@CURVES.add(
    "sample_efficiency",
    "no dataset with several train sizes, of a method and its base",
    caption="A gain that falls from left to right shrinks as data grow.",
)
def sample_efficiency(study: Study) -> dict[str, Panels]:
    """Draw the score and its gain in percent of the base's (Figure 2a), for each dataset with several train sizes.

    Gains are by seed: the score over the base's of the same seed and size, minus 1.
    """
    figures = {}
    for dataset, runs in study.runs.groupby("dataset", sort=False):
        images, lines = dict(zip(runs["column"], runs["train_images"], strict=True)), []
        gained = {where: gap for where, gap in gaps(study).items() if where[1] in images and len(gap)}
        panels = {f"{study.score} (%)": values_by_seed(study), "gain relative to the base (%)": gained}
        for panel, cells in panels.items() if len(set(images.values())) > 1 and gained else ():
            for (row, column), values in cells.items():
                if column in images:
                    mean = student(values)
                    where = panel, row, images[column], mean.low, mean.high
                    lines += [(*where, seed, value) for seed, value in values.items()]
        if lines:
            data = pd.DataFrame(lines, columns=["column", "row", "x", "low", "high", "seed", "value"])
            title = f"Sample efficiency, {study.heads[0] or str(dataset)}"
            figure = over_numbers(study, data, "training images", "", title, study.rows)
            figures[f"sample_efficiency-{file_part(str(dataset))}"] = figure
    return figures
