"""Paired differences by seed: by row, and beside those of placebos."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import (
    Panels,
    finish,
    palette,
    panels,
    present,
    score_name,
    side_by_side,
    t_interval,
    with_seeds,
)
from vitinit.analysis.frame import Study
from vitinit.analysis.gains import label
from vitinit.analysis.tables.shared import baselines_of, values_by_seed

if TYPE_CHECKING:
    import pandas as pd

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


def _points(
    study: Study, data: pd.DataFrame, labels: list[str], inches: float, by: str, looks: dict[str, dict[str, Any]]
) -> Panels:
    """Draw means with intervals, so many inches per label from top to bottom.

    Args:
        study: The records.
        data: With columns `column`, `label`, `gain` and `by`.
        labels: In their order.
        inches: Height of a label.
        by: Column that decides the look of a point. Where it is not the label, those of a label are below each other.
        looks: Colour and marker by its values.
    """
    across = side_by_side(data["column"].nunique())
    grid = panels(data, data["column"], 0.8 + inches * len(labels), across, x=gain_name(study))
    for key, gains in data.groupby(["column", "label", by])["gain"]:
        column, name, value = map(str, key)
        place = -float(labels.index(name))
        if by != "label":
            place += 0.2 - 0.4 * list(looks).index(value) / (len(looks) - 1)
        axes, (low, high), colour = grid.axes[column], t_interval(gains), looks[value]["color"]
        (point,) = axes.plot(gains.mean(), place, linestyle="", markersize=5, zorder=3, **looks[value])
        axes.plot(
            [low, high], [place, place], color=colour, linewidth=1.5, marker="|" if by == "label" else "", markersize=6
        )
        if by == "label":
            axes.plot(gains, [place] * len(gains), linestyle="", marker="|", markersize=7, color=colour, alpha=0.6)
        else:
            grid.legend.setdefault(value, point)
    names = [textwrap.fill(textwrap.shorten(label, 90, placeholder="…"), 32) for label in labels]
    for axes in grid.axes.values():
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(0, -len(labels), -1), names)
        axes.set_ylim(0.5 - len(labels), 0.5)
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    return grid


@FIGURES.add(
    "differences",
    NO_PAIRS,
    caption="An interval without 0 is a difference that these seeds show; of many intervals some exclude 0 by chance.",
    to_baseline=True,
)
def differences(study: Study, baseline: str | None = None) -> dict[str, Panels]:
    """Draw differences with a tick for each seed: the grid's contrasts if all have runs, else those to own bases.

    A base, which is a row without a method, is compared with the first base.
    """
    data = by_seed(study, {} if baseline else {label(pair): pair for pair in study.contrasts})
    over = "the second row"
    if data["label"].nunique() < max(1, len(study.contrasts)):
        over = baseline or "each method's base"
        data = by_seed(study, own_pairs(study, baseline) if baseline else _with_bases(study))
    if not len(data):
        return {}
    labels = list(dict.fromkeys(data["label"]))
    colours = palette(present(study.rows, data["row"]))
    looks = {name: {"color": colours[row], "marker": "o"} for name, row in zip(data["label"], data["row"], strict=True)}
    grid = _points(study, data, labels, 0.24, "label", looks)
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
def forest(study: Study, baseline: str | None = None) -> dict[str, Panels]:
    """Draw the difference of each row but placebos, the largest first, and in its line those of its placebos."""
    of, data = placebos(study), by_seed(study, own_pairs(study, baseline))
    data["label"] = [of.get(row, (row, ""))[0] for row in data["row"]]
    data["kind"] = [of.get(row, ("", "itself"))[1] for row in data["row"]]
    order = data[data["kind"] == "itself"].groupby("label")["gain"].mean().sort_values(ascending=False)
    data = data[data["label"].isin(order.index)].reset_index(drop=True)
    kinds = present(KINDS, data["kind"])
    if len(kinds) < 2:
        return {}
    looks = {kind: {"color": KINDS[kind], "marker": marker} for kind, marker in zip(kinds, "os^Dv", strict=False)}
    grid = _points(study, data, list(order.index), 0.34, "kind", looks)
    names = {kind: "the row itself" if kind == "itself" else f"its placebo ({kind})" for kind in kinds}
    grid.legend = {names[kind]: grid.legend[kind] for kind in kinds}
    title = "Gain over " + (baseline or "each method's base")
    return {"forest": finish(grid, title, f"{BY_SEED}, the largest gain first", with_seeds(data, "row"))}
