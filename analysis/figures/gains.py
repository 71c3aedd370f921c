"""Paired differences by seed: by row, beside those of placebos, beside what initialising costs."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import WIDTH, finish, palette, plain, present, score_name, seeds, short, t_interval
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.contrasts import label
from vitinit.analysis.tables.shared import baselines_of, contrasts_compared, values_by_seed
from vitinit.analysis.text import capitalised

if TYPE_CHECKING:
    import pandas as pd
    from seaborn import FacetGrid

NO_PAIRS = "no row has a seed in common with its base, or with the baseline"
KINDS = {"itself": "black", "spectrum": "#D55E00", "norm": "#0072B2", "entropy": "#009E73", "entries": "#CC79A7"}
"""Colours of a row and of its placebos, by what they keep."""


def by_seed(study: Study, pairs: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """Return the differences of pairs of rows, given by label: one line per column, label and seed that both have."""
    import pandas as pd

    values = values_by_seed(study, "last")
    lines = [
        (column, name, first, second, seed, gain)
        for column in study.columns
        for name, (first, second) in pairs.items()
        if {(first, column), (second, column)} <= values.keys()
        for seed, gain in (values[first, column] - values[second, column]).dropna().items()
    ]
    return pd.DataFrame(lines, columns=["column", "label", "row", "over", "seed", "gain"])


def own_pairs(study: Study, baseline: str | None = None) -> dict[str, tuple[str, str]]:
    """Return each row with its own base, or with one baseline, by its label."""
    return {row: (row, other) for row, other in baselines_of(study, baseline).items()}


def _points(data: pd.DataFrame, labels: list[str], x: str = "gain", **options: Any) -> FacetGrid:
    """Draw means with intervals, a line per label from top to bottom, a panel per column of the table."""
    import seaborn as sns

    columns = list(dict.fromkeys(data["column"]))
    across = min(3, len(columns))
    height = max(1.5, (0.34 if "dodge" in options else 0.24) * len(labels) + 0.7)
    height += 0.13 * (max(map(len, columns)) * across // int(WIDTH * 11) + across - 1)  # longer titles and names
    grid = sns.catplot(
        data,
        kind="point",
        x=x,
        y="label",
        order=labels,
        col="column",
        col_order=columns,
        col_wrap=across,
        errorbar=t_interval,
        linestyle="none",
        height=height,
        aspect=WIDTH / across / height,
        **{"markersize": 4, "err_kws": {"linewidth": 1.5}, "capsize": 0.25, "legend_out": False, **options},
    )
    grid.refline(x=0, linestyle="-", color="black", linewidth=0.8)
    for axes in grid.axes.flat:
        axes.set_yticks(range(len(labels)), [textwrap.fill(short(text), 34) for text in labels])
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
    return grid


def _name_axis(grid: FacetGrid, name: str) -> None:
    grid.set_axis_labels(textwrap.fill(name, int(40 / min(3, len(grid.axes_dict)) + 8)), "")


def _with_bases(study: Study, pairs: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Add each base, a row without a method, with the first one of the same model and recipe."""
    specs = {row: study.examples[row, None] for row in study.rows}
    plain = [row for row in study.rows if not specs[row].method]
    for row in plain:
        like = (
            other
            for other in plain
            if (specs[other].model, specs[other].recipe) == (specs[row].model, specs[row].recipe)
        )
        first = next(like)
        if first != row:
            pairs[row] = row, first
    return {row: pairs[row] for row in study.rows if row in pairs}


@FIGURES.add(
    "differences",
    NO_PAIRS,
    caption="An interval without 0 is a difference that these seeds show; of many intervals some exclude 0 by chance.",
    place=3,
    to_baseline=True,
)
def differences(study: Study, baseline: str | None = None) -> dict[str, FacetGrid]:
    """Draw differences with a tick for each seed: the grid's contrasts if all have runs, else those to own bases.

    A base, which is a row without a method, is compared with the first base.
    """
    import seaborn as sns

    named = baseline is None and contrasts_compared(study)
    data = by_seed(study, {label(pair): pair for pair in study.contrasts} if named else {})
    if data["label"].nunique() < max(1, len(study.contrasts)):
        pairs = own_pairs(study, baseline)
        named, data = False, by_seed(study, pairs if baseline else _with_bases(study, pairs))
    if not len(data):
        return {}
    labels = list(dict.fromkeys(data["label"]))
    firsts = palette(present(study.rows, data["row"]))
    colours = {name: firsts[row] for name, row in zip(data["label"], data["row"], strict=True)}
    grid = _points(data, labels, hue="label", palette=colours, legend=False)
    grid.map_dataframe(
        sns.stripplot,
        x="gain",
        y="label",
        order=labels,
        hue="label",
        palette=colours,
        jitter=False,
        marker="|",
        size=7,
        linewidth=0.8,
        alpha=0.6,
    )
    over = "the second row" if named else baseline or "the own base"
    _name_axis(grid, f"difference in {score_name(study.runs)} (points)")
    titles = {column: f"{column}: {seeds(its, 'label')}" for column, its in data.groupby("column")}
    title = f"{capitalised(score_name(study.runs))} minus that of {over}"
    return {"differences": finish(grid, title, "by seed: mean with 95 % interval (t); ticks: seeds", titles)}


def placebos(study: Study) -> dict[str, dict[str, str]]:
    """Return the placebo rows of each row, over the same base and model, by the property that they keep."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    specs = {row: study.examples[row, None] for row in study.rows}
    for row, spec in specs.items():
        for other, its in specs.items():
            if not (spec.method and its.method and its.method.name == "placebo"):
                continue
            of = {"name": spec.method.name, **spec.method.params}
            if its.method.params["of"] == of and (its.base, its.model) == (spec.base, spec.model):
                found[row][its.method.params["keep"]] = other
    return dict(found)


@FIGURES.add(
    "forest",
    "no method with a gain has its placebo beside it",
    caption="A method that gains no more than its placebo is not shown to owe its gain to its pattern.",
    place=4,
    to_baseline=True,
)
def forest(study: Study, baseline: str | None = None) -> dict[str, FacetGrid]:
    """Draw the difference of each row but placebos, the largest first, and in its line those of its placebos."""
    of = placebos(study)
    data = by_seed(study, own_pairs(study, baseline))
    method = {name: (row, keep) for row, its in of.items() for keep, name in its.items()}
    data = data.assign(
        label=[method.get(row, (row, ""))[0] for row in data["row"]],
        kind=[method.get(row, ("", "itself"))[1] for row in data["row"]],
    )
    order = data[data["kind"] == "itself"].groupby("label")["gain"].mean().sort_values(ascending=False)
    data = data[data["label"].isin(order.index)]
    if set(data["kind"]) <= {"itself"}:
        return {}
    kinds = present(KINDS, data["kind"])
    names = {kind: "the row itself" if kind == "itself" else f"its placebo ({kind})" for kind in kinds}
    data = data.assign(kind=data["kind"].map(names))
    grid = _points(
        data,
        list(order.index),
        hue="kind",
        hue_order=list(names.values()),
        dodge=0.4,
        capsize=0,
        markersize=3.5,
        palette={names[kind]: KINDS[kind] for kind in kinds},
        markers=["o", "s", "^", "D", "v"][: len(kinds)],
    )
    _name_axis(grid, f"difference in {score_name(study.runs)} (points)")
    titles = {column: f"{column}: {seeds(its, 'row')}" for column, its in data.groupby("column")}
    title = f"{capitalised(score_name(study.runs))} minus that of {baseline or 'the own base'}"
    return {"forest": finish(grid, title, "by seed: mean with 95 % interval (t), the largest gain first", titles)}


@FIGURES.add(
    "cost",
    NO_PAIRS,
    caption="On the left what initialising takes, on the right what it gains: is the one worth the other?",
    place=5,
    to_baseline=True,
)
def cost(study: Study, baseline: str | None = None) -> dict[str, FacetGrid]:
    """Draw milliseconds that initialising took beside the gain: two panels per dataset, a line per row."""
    import pandas as pd
    import seaborn as sns

    gains = by_seed(study, own_pairs(study, baseline))
    if not len(gains):
        return {}
    milliseconds = study.runs[["column", "row", "seed"]].assign(value=(1000 * study.runs["init_seconds"]).clip(0.1))
    took, gained = "initialisation (ms, log scale)", f"gain in {score_name(study.runs)} (points)"
    data = pd.concat(
        [
            milliseconds[milliseconds["row"].isin(gains["row"])].assign(quantity=took),
            gains[["column", "row", "seed"]].assign(value=gains["gain"], quantity=gained),
        ],
        ignore_index=True,
    )
    rows, columns = present(study.rows, gains["row"]), present(study.columns, gains["column"])
    height = max(1.3, 0.24 * len(rows) + 0.6)
    grid = sns.FacetGrid(
        data[data["column"].isin(columns)],
        row="column",
        row_order=columns,
        col="quantity",
        col_order=[took, gained],
        sharex="col",
        height=height,
        aspect=WIDTH / 2 / height,
    )
    for (column, quantity), axes in grid.axes_dict.items():
        sns.pointplot(
            data[(data["column"] == column) & (data["quantity"] == quantity)],
            x="value",
            y="row",
            order=rows,
            hue="row",
            palette=palette(rows),
            ax=axes,
            errorbar=t_interval if quantity == gained else ("pi", 100),
            linestyle="none",
            markersize=4,
            err_kws={"linewidth": 1.5},
            capsize=0.25,
            legend=False,
            log_scale=None,
        )
        axes.set_yticks(range(len(rows)), [textwrap.fill(short(row), 30) for row in rows])
        axes.set(xlabel=quantity, ylabel="")
        if quantity == gained:
            axes.axvline(0, color="black", linewidth=0.8)
        else:
            axes.set_xscale("log")
            plain(axes.xaxis)
        axes.tick_params(axis="y", length=0)
    title = f"Cost of initialising, and gain over {baseline or 'the own base'}"
    titles = {(column, quantity): column for column, quantity in grid.axes_dict}
    return {"cost": finish(grid, title, "means; left: fastest to slowest seed, right: 95 % interval (t)", titles)}
