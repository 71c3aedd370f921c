"""Paired differences by seed: by row, and beside those of placebos."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import WIDTH, finish, palette, present, score_name, t_interval, with_seeds
from vitinit.analysis.frame import Study
from vitinit.analysis.gains import label
from vitinit.analysis.tables.shared import baselines_of, values_by_seed

if TYPE_CHECKING:
    import pandas as pd
    from seaborn import FacetGrid

NO_PAIRS = "no row has a seed in common with its base, or with the baseline"
KINDS = {"itself": "black", "spectrum": "#D55E00", "norm": "#0072B2", "entropy": "#009E73", "entries": "#CC79A7"}
"""Colours of a row and of its placebos, by what they keep."""
BY_SEED = "by seed: mean with 95 % interval (t)"


def by_seed(study: Study, pairs: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """Return the gains of pairs of rows, given by label: one line per column, label and seed that both have.

    A gain is positive, in an error too.
    """
    import pandas as pd

    values, sign = values_by_seed(study, "last"), -1 if study.lower_is_better else 1
    lines = [
        (column, name, first, second, seed, sign * gain)
        for column in study.columns
        for name, (first, second) in pairs.items()
        if {(first, column), (second, column)} <= values.keys()
        for seed, gain in (values[first, column] - values[second, column]).dropna().items()
    ]
    return pd.DataFrame(lines, columns=["column", "label", "row", "over", "seed", "gain"])


def own_pairs(study: Study, baseline: str | None = None) -> dict[str, tuple[str, str]]:
    """Return each row with its own base, or with one baseline, by its label."""
    return {row: (row, other) for row, other in baselines_of(study, baseline).items()}


def _with_bases(study: Study) -> dict[str, tuple[str, str]]:
    """Return each row with its own base, and each base with the first one of the same model and recipe."""
    pairs, first = own_pairs(study), dict[str, str]()
    for row in study.rows:
        spec = study.examples[row, None]
        if not spec.method:
            base = first.setdefault(spec.model_dump_json(include={"model", "recipe"}), row)
            pairs |= {row: (row, base)} if base != row else {}
    return {row: pairs[row] for row in present(study.rows, pairs)}


def gain_name(study: Study) -> str:
    """Return the name of an axis of gains."""
    return f"gain in {score_name(study.runs)} (points" + (", lower is better)" if study.lower_is_better else ")")


def _points(data: pd.DataFrame, labels: list[str], each: float, **options: Any) -> FacetGrid:
    """Draw means with intervals, a line of so many inches per label from top to bottom."""
    import seaborn as sns

    across = min(data["column"].nunique(), 3)
    height = 0.8 + each * len(labels)
    grid = sns.catplot(
        data,
        kind="point",
        order=labels,
        errorbar=t_interval,
        linestyle="none",
        height=height,
        aspect=WIDTH / across / height,
        col="column",
        col_wrap=across,
        markersize=4,
        err_kws={"linewidth": 1.5},
        legend_out=False,
        **options,
    )
    for axes in grid.axes.flat:
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(
            range(len(labels)), [textwrap.fill(textwrap.shorten(text, 90, placeholder="…"), 32) for text in labels]
        )
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    return grid


@FIGURES.add(
    "differences",
    NO_PAIRS,
    caption="An interval without 0 is a difference that these seeds show; of many intervals some exclude 0 by chance.",
    to_baseline=True,
)
def differences(study: Study, baseline: str | None = None) -> dict[str, FacetGrid]:
    """Draw differences with a tick for each seed: the grid's contrasts if all have runs, else those to own bases.

    A base, which is a row without a method, is compared with the first base.
    """
    import seaborn as sns

    data = by_seed(study, {} if baseline else {label(pair): pair for pair in study.contrasts})
    over = "the second row"
    if data["label"].nunique() < max(1, len(study.contrasts)):
        over = baseline or "each method's base"
        data = by_seed(study, own_pairs(study, baseline) if baseline else _with_bases(study))
    if not len(data):
        return {}
    labels = list(dict.fromkeys(data["label"]))
    firsts = palette(present(study.rows, data["row"]))
    colours = {name: firsts[row] for name, row in zip(data["label"], data["row"], strict=True)}
    how: dict[str, Any] = {"x": "gain", "y": "label", "hue": "label", "palette": colours}
    grid = _points(data, labels, 0.24, legend=False, capsize=0.25, **how)
    ticks: dict[str, Any] = {"jitter": False, "marker": "|", "size": 7, "linewidth": 0.8, "alpha": 0.6}
    grid.map_dataframe(sns.stripplot, order=labels, **how, **ticks)
    grid.set_axis_labels(gain_name(study), "")
    return {"differences": finish(grid, f"Gain over {over}", f"{BY_SEED}; ticks: seeds", with_seeds(data, "label"))}


def placebos(study: Study) -> dict[str, tuple[str, str]]:
    """Return for each placebo the row that it is of, over the same base and model, and the property that it keeps."""
    specs = {row: study.examples[row, None] for row in study.rows}
    return {
        row: (other, spec.method.params["keep"])
        for row, spec in specs.items()
        if spec.method and spec.method.name == "placebo"
        for other, its in specs.items()
        if its.method and spec.method.params["of"] == {"name": its.method.name, **its.method.params}
        if (its.base, its.model) == (spec.base, spec.model)
    }


@FIGURES.add(
    "forest",
    "no method with a gain has its placebo beside it",
    caption="A method that gains no more than its placebo is not shown to owe its gain to its pattern.",
    to_baseline=True,
)
def forest(study: Study, baseline: str | None = None) -> dict[str, FacetGrid]:
    """Draw the difference of each row but placebos, the largest first, and in its line those of its placebos."""
    of, data = placebos(study), by_seed(study, own_pairs(study, baseline))
    data["label"] = [of.get(row, (row, ""))[0] for row in data["row"]]
    data["kind"] = [of.get(row, ("", "itself"))[1] for row in data["row"]]
    order = data[data["kind"] == "itself"].groupby("label")["gain"].mean().sort_values(ascending=False)
    data = data[data["label"].isin(order.index)].reset_index(drop=True)
    kinds = present(KINDS, data["kind"])
    if len(kinds) < 2:
        return {}
    look = {"hue_order": kinds, "palette": KINDS, "markers": ["o", "s", "^", "D", "v"][: len(kinds)]}
    grid = _points(data, list(order.index), 0.34, x="gain", y="label", hue="kind", dodge=0.4, **look)
    for text in grid.legend.get_texts():
        text.set_text("the row itself" if text.get_text() == "itself" else f"its placebo ({text.get_text()})")
    grid.set_axis_labels(gain_name(study), "")
    title = "Gain over " + (baseline or "each method's base")
    return {"forest": finish(grid, title, f"{BY_SEED}, the largest gain first", with_seeds(data, "row"))}
