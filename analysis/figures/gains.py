"""Paired differences by seed: by row, and beside those of placebos."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vitinit.analysis.comparison import Comparison, compare
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import (
    LOOKS,
    Panels,
    finish,
    intervals_of,
    palette,
    panels,
    present,
    score_name,
    with_seeds,
)
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import baselines_of, placebos
from vitinit.benchmark.contrasts import Contrast

if TYPE_CHECKING:
    import pandas as pd

NO_PAIRS = "no row has a seed in common with its base, or with the baseline"
Pairs = dict[str, tuple[str, str] | Contrast]
"""Two rows, or a contrast, by label."""
BY_SEED = "by seed: mean with 95 % interval (t)"


def compared(study: Study, pairs: Pairs) -> dict[tuple[str, str], Comparison]:
    """Return the comparisons of rows by column and label."""
    found = {(column, name): compare(study, pair, column) for column in study.columns for name, pair in pairs.items()}
    return {key: comparison for key, comparison in found.items() if comparison}


def by_seed(comparisons: Mapping[tuple[str, str], Comparison], pairs: Pairs) -> pd.DataFrame:
    """Return gains by seed: one line per column, label and seed; the rows are the first and the last by weight."""
    import pandas as pd

    rows = {
        name: pair if isinstance(pair, tuple) else tuple(sorted(pair.weights, key=lambda row: -pair.weights[row]))
        for name, pair in pairs.items()
    }
    lines = [
        (column, name, rows[name][0], rows[name][-1], seed, gain)
        for (column, name), comparison in comparisons.items()
        for seed, gain in comparison.by_seed.items()
    ]
    return pd.DataFrame(lines, columns=["column", "label", "row", "over", "seed", "gain"])


def own_pairs(study: Study, baseline: str | None = None) -> Pairs:
    """Return each row with its own base, or with one baseline, by its label."""
    return {row: (row, other) for row, other in baselines_of(study, baseline).items()}


def _with_bases(study: Study) -> Pairs:
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
    study: Study,
    data: pd.DataFrame,
    comparisons: Mapping[tuple[str, str], Comparison],
    labels: list[str],
    inches: float,
    by: str,
    looks: dict[str, dict[str, Any]],
) -> Panels:
    """Draw means with intervals, so many inches per label from top to bottom.

    Args:
        study: The records.
        data: With columns `column`, `label`, `gain` and `by`.
        comparisons: What is drawn, with its intervals.
        labels: In their order.
        inches: Height of a label.
        by: Column that decides the look of a point. Where it is not the label, those of a label are below each other.
        looks: Colour and marker by its values.
    """
    interval_of = intervals_of(comparisons.values())
    grid = panels(data, data["column"], 0.8 + inches * len(labels), x=gain_name(study))
    for key, gains in data.groupby(["column", "label", by])["gain"]:
        column, name, value = map(str, key)
        place = -float(labels.index(name))
        if by != "label":
            place += 0.2 - 0.4 * list(looks).index(value) / (len(looks) - 1)
        axes, (low, high), middle = grid.axes[column], interval_of(gains), gains.mean()
        ends = [[middle - low], [high - middle]]
        point = axes.errorbar(middle, place, xerr=ends, ms=5, lw=1.5, capsize=3 * (by == "label"), **looks[value])
        if by == "label":
            axes.plot(gains, [place] * len(gains), "|", ms=7, color=looks[value]["color"], alpha=0.6)
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
    over, pairs = "the second row", dict[str, tuple[str, str] | Contrast]()
    if not baseline:
        pairs |= {contrast.name: contrast for contrast in study.contrasts}
    comparisons = compared(study, pairs)
    if len({name for _, name in comparisons}) < max(1, len(pairs)):
        over, pairs = baseline or "each method's base", own_pairs(study, baseline) if baseline else _with_bases(study)
        comparisons = compared(study, pairs)
    if not comparisons:
        return {}
    data = by_seed(comparisons, pairs)
    labels = list(dict.fromkeys(data["label"]))
    colours = palette(present(study.rows, data["row"]))
    looks = {name: {"color": colours[row], "fmt": "o"} for name, row in zip(data["label"], data["row"], strict=True)}
    grid = _points(study, data, comparisons, labels, 0.24, "label", looks)
    return {"differences": finish(grid, f"Gain over {over}", f"{BY_SEED}; ticks: seeds", with_seeds(data, "label"))}


@FIGURES.add(
    "forest",
    "no method with a gain has its placebo beside it",
    caption="A method that gains no more than its placebo is not shown to owe its gain to its pattern.",
    to_baseline=True,
)
def forest(study: Study, baseline: str | None = None) -> dict[str, Panels]:
    """Draw the difference of each row but placebos, the largest first, and in its line those of its placebos."""
    of, pairs = placebos(study), own_pairs(study, baseline)
    comparisons = compared(study, pairs)
    data = by_seed(comparisons, pairs)
    data["label"] = [of.get(row, (row, ""))[0] for row in data["row"]]
    data["kind"] = [of.get(row, ("", "itself"))[1] for row in data["row"]]
    order = data[data["kind"] == "itself"].groupby("label")["gain"].mean().sort_values(ascending=False)
    data = data[data["label"].isin(order.index)].reset_index(drop=True)
    kinds = present(LOOKS["kinds"], data["kind"])
    if len(kinds) < 2:
        return {}
    grid = _points(
        study, data, comparisons, list(order.index), 0.34, "kind", {kind: LOOKS["kinds"][kind] for kind in kinds}
    )
    names = {kind: "the row itself" if kind == "itself" else f"its placebo ({kind})" for kind in kinds}
    grid.legend = {names[kind]: grid.legend[kind] for kind in kinds}
    title = "Gain over " + (baseline or "each method's base")
    return {"forest": finish(grid, title, f"{BY_SEED}, the largest gain first", with_seeds(data, "row"))}
