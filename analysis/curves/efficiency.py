"""Accuracy over the number of training images, and what a row gains on its base (Figure 2a of arXiv 2103.10697)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.scaling import over_numbers, several_sizes
from vitinit.analysis.figures.style import file_part, score_name
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.convit import gap_bases

if TYPE_CHECKING:
    from seaborn import FacetGrid


@CURVES.add(
    "sample_efficiency",
    "no dataset with several train sizes, of a method and its base",
    caption="A gain that falls from left to right shrinks as data grow.",
    place=8,
    to_baseline=True,
)
def sample_efficiency(study: Study, baseline: str | None = None) -> dict[str, FacetGrid]:
    """Draw, for each dataset with several train sizes, the score, and its gain in percent of the base's (Figure 2a).

    Gains are by seed: the score over the base's of the same seed and size, minus 1.
    """
    import pandas as pd

    bases, figures = gap_bases(study, baseline), {}
    for name, runs in several_sizes(study).items():
        theirs = runs.loc[runs["value"] > 0, ["row", "x", "seed", "value"]]
        ours = runs.assign(base=runs["row"].map(bases)).dropna(subset="base")
        both = ours.merge(theirs, left_on=["base", "x", "seed"], right_on=["row", "x", "seed"], suffixes=("", "_base"))
        if len(both):
            gains = both.assign(
                column="gain relative to the base (%)", value=100 * (both["value"] / both["value_base"] - 1)
            )
            data = pd.concat([runs.assign(column=f"{score_name(runs)} (%)"), gains])
            figure = over_numbers(data, "training images", "", f"Sample efficiency, {name}", study.rows)
            figures[f"sample_efficiency-{file_part(name)}"] = figure
    return figures
