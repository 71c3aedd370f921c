"""Paired differences by seed: by row, and beside those of placebos."""

import textwrap
from typing import Any

import pandas as pd

from vitinit.analysis.comparison import MAIN, between, compare
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import LOOKS, WIDTH, Panels, finish, palette, panels, present, with_seeds
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import baselines_of, placebos
from vitinit.analysis.tables.notes import not_initialisation_alone
from vitinit.analysis.text import listed
from vitinit.benchmark.contrasts import Contrast

BY_SEED = "by seed: mean with 95 % interval"
OWN_BASES = "each method's base"


def differences_of(study: Study, contrasts: dict[str, Contrast]) -> pd.DataFrame:
    """Return gains by seed with the interval of their mean, a line per column, label and seed.

    `row` and `over` are the first and the last row by weight.
    """
    lines = []
    for column in study.columns:
        for label, contrast in contrasts.items():
            if comparison := compare(study, contrast, column):
                rows = sorted(contrast.weights, key=lambda row: -contrast.weights[row])
                known = comparison.low, comparison.high, comparison.verdict
                for seed, gain in comparison.by_seed.items():
                    lines.append((column, label, rows[0], rows[-1], seed, gain, *known))
    return pd.DataFrame(lines, columns=["column", "label", "row", "over", "seed", "gain", "low", "high", "verdict"])


def _hollow(data: pd.DataFrame) -> str:
    return "; hollow: fails its test" * ("unconfirmed" in set(data["verdict"]))


def _to_bases(study: Study) -> dict[str, Contrast]:
    """Return each row minus the row that it is compared with."""
    bases = baselines_of(study)
    return {row: between(row, bases[row]) for row in present(study.rows, bases)}


def gain_name(study: Study) -> str:
    """Return the name of an axis of gains."""
    return f"gain in {study.score} (points)"


def _points(
    study: Study, data: pd.DataFrame, labels: list[str], inches: float, by: str, looks: dict[str, dict[str, Any]]
) -> Panels:
    """Draw means with intervals, so many inches per label from top to bottom.

    Args:
        study: The records.
        data: As `differences_of` returns it.
        labels: In their order.
        inches: Height of a label.
        by: Column that decides the look of a point. Where it is not the label, those of a label are below each other.
        looks: Colour and marker by its values.
    """
    from matplotlib import rcParams

    # beside the labels a column of an article has room for one panel
    across, room = (3, 0.85) if rcParams["figure.figsize"][0] >= WIDTH else (1, 0.55)
    height, name = 0.8 + inches * len(labels), gain_name(study)
    grid = panels(data, data["column"], height, across, x=name, sharex=False, room=room)
    for key, group in data.groupby(["column", "label", by, "row", "verdict"]):
        column, label, value, _, verdict = map(str, key)
        axes, place, look = grid.axes[column], -float(labels.index(label)), looks[value]
        gain, low, high = group[["gain", "low", "high"]].mean()
        if by == "label":
            axes.plot(group["gain"], [place] * len(group), "|", ms=7, color=look["color"], alpha=0.6)
        else:
            place += 0.2 - 0.4 * list(looks).index(value) / (len(looks) - 1)
        ends, look = [[gain - low], [high - gain]], look | ({"mfc": "white"} if verdict == "unconfirmed" else {})
        point = axes.errorbar(gain, place, xerr=ends, ms=5, lw=1.5, capsize=3 * (by == "label"), **look)
        if by != "label":
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
    "no row has a seed in common with its base, or with the baseline",
    caption="Hollow: the interval excludes 0, and the test fails. One interval in twenty excludes 0 by chance.",
)
def differences(study: Study) -> dict[str, Panels]:
    """Draw differences with a tick for each seed: the grid's contrasts if all have runs, else those to own bases.

    A base, which is a row without a method, is compared with the first base.
    """
    contrasts = {
        contrast.name + f" ({contrast.family})" * (contrast.family != MAIN): contrast
        for contrast in study.contrasts
        if not study.baseline
    }
    title, data = "Comparisons that the grid names", differences_of(study, contrasts)
    if not contrasts or data["label"].nunique() < len(contrasts):
        title, data = f"Gain over {study.baseline or OWN_BASES}", differences_of(study, _to_bases(study))
    if data.empty:
        return {}
    colours = palette(present(study.rows, data["row"]))
    looks = {
        label: {"color": colours[row], "fmt": "o"} for label, row in data[["label", "row"]].itertuples(index=False)
    }
    grid = _points(study, data, list(looks), 0.24, "label", looks)
    note = f"{BY_SEED}; ticks: seeds{_hollow(data)}"
    return {"differences": finish(study, grid, title, note, with_seeds(data, "label"))}


@FIGURES.add(
    "forest",
    "no method with a gain has its placebo beside it",
    caption="A method that gains no more than its placebo is not shown to owe its gain to its pattern.",
)
def forest(study: Study) -> dict[str, Panels]:
    """Draw the difference of each row but placebos, the largest first, and in its line those of its placebos."""
    of, bases = placebos(study), _to_bases(study)
    data = differences_of(study, bases)
    data["label"] = [of.get(row, (row, ""))[0] for row in data["row"]]
    data["keeps"] = [of.get(row, ("", "itself"))[1] for row in data["row"]]
    order = data[data["keeps"] == "itself"].groupby("label")["gain"].mean().sort_values(ascending=False)
    data = data[data["label"].isin(order.index)].reset_index(drop=True)
    looks = {keeps: look for keeps, look in LOOKS["placebos"].items() if keeps in set(data["keeps"])}
    if len(looks) < 2:
        return {}
    grid = _points(study, data, list(order.index), 0.34, "keeps", looks)
    grid.legend = {
        "the row itself" if keeps == "itself" else f"its placebo ({keeps})": grid.legend[keeps] for keeps in looks
    }
    alone = [row for row in study.rows if study.examples[row, None].method and row not in bases | of]
    notes = [
        f"{BY_SEED}, the largest gain first{_hollow(data)}.",
        *([f"Not drawn, as no row is the base: {listed(alone)}."] if alone else []),
        *not_initialisation_alone(study, [(row, other) for row, (other, _) in of.items() if row in set(data["row"])]),
    ]
    title = f"Gain over {study.baseline or OWN_BASES}"
    return {"forest": finish(study, grid, title, " ".join(notes), with_seeds(data, "row"))}
