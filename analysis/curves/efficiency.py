"""Accuracy over the number of training images, and what a row gains on its base (Figure 2a of arXiv 2103.10697)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.scaling import lines, several_sizes
from vitinit.analysis.figures.style import file_part, score_name
from vitinit.analysis.frame import Study
from vitinit.analysis.tables import gap
from vitinit.analysis.tables.shared import check_baseline

if TYPE_CHECKING:
    import pandas as pd
    from seaborn import FacetGrid


@CURVES.add(
    "sample_efficiency",
    "no dataset with several train sizes, of a method and its base",
    caption="A gain that falls from left to right shrinks as data grow.",
    place=8,
    to_baseline=True,
)
def sample_efficiency(study: Study, baseline: str | None = None) -> dict[str, FacetGrid]:
    """Draw, for each dataset with several train sizes, the score, and the gain relative to the base's (Figure 2a)."""
    import pandas as pd

    check_baseline(baseline, [study])
    bases, figures = gap.baselines(study, baseline), {}
    for name, runs in several_sizes(study).items():
        gains = relative_gains(runs, bases)
        if len(gains):
            scores = runs.assign(column=f"{score_name(runs)} (%)", x=runs["train_images"], value=runs["score"])
            gains = gains.assign(column="gain relative to the base (%)", x=gains["train_images"], value=gains["gain"])
            data = pd.concat([scores, gains])[["column", "row", "seed", "x", "value"]].reset_index(drop=True)
            title = f"Sample efficiency, {name}"
            figures[f"sample_efficiency-{file_part(name)}"] = lines(data, "training images", "", title, study.rows)
    return figures


def relative_gains(runs: pd.DataFrame, baselines: dict[str, str]) -> pd.DataFrame:
    """Return the score over the base's of the same seed and size, minus 1, in percent: runs with a column `gain`."""
    pairs = ["train_images", "seed"]
    theirs = runs[runs["score"] > 0][["row", *pairs, "score"]].rename(columns={"row": "baseline"})
    ours = runs.assign(baseline=runs["row"].map(baselines)).dropna(subset="baseline")
    both = ours.merge(theirs, on=["baseline", *pairs], suffixes=("", "_baseline"))
    return both.assign(gain=100 * (both["score"] / both["score_baseline"] - 1))
