"""Attention over epochs: a figure per quantity and dataset, a panel per row, a line per layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.style import SD, file_part, finish, present, size, ticks
from vitinit.analysis.frame import PROBES, Study, mean_distance
from vitinit.analysis.unread import marked, said

if TYPE_CHECKING:
    from seaborn import FacetGrid

NAMED = 4
"""Upper limit of cells without probes that are named."""


@dataclass(frozen=True)
class Quantity:
    """A quantity that a probe measures in each layer."""

    title: str
    axis: str
    uniform: Callable[[int], float] | None = None
    """Its value with uniform attention, or dependence, on a token grid of so many tokens a side; None draws none."""
    reference: str = "uniform attention"
    """Name of the value of `uniform`."""
    why_none: str = "no record holds probes"
    caption: str = ""
    """Reading help, in a sentence."""


def mean_distance_from_centre(side: int) -> float:
    """Receptive field of a token that depends on all patches alike: `runners.probes` takes that at side // 2."""
    return mean(math.hypot(down - side // 2, across - side // 2) for down in range(side) for across in range(side))


QUANTITIES = {
    "nonlocality": Quantity(
        "Nonlocality",
        "nonlocality (tokens)",
        mean_distance,
        caption="The lower a line, the more local is the attention of its layer.",
    ),
    "nonlocality_reference": Quantity(
        "Nonlocality as the released ConViT code computes it",
        "nonlocality (tokens)",
        mean_distance,
        caption="Layers are fed patches without positions, so only GPSA is local by these, and no ViT compares to it.",
    ),
    "attention_entropy": Quantity(
        "Entropy of attention",
        "entropy (nats)",
        lambda side: math.log(side**2),
        caption="The lower a line, the fewer tokens its layer looks at.",
    ),
    "effective_receptive_field": Quantity(
        "Radius of the effective receptive field",
        "radius (tokens)",
        mean_distance_from_centre,
        "all patches count alike",
        caption="The higher a line, the further away in the image is what a token depends on after that layer.",
    ),
    "impulse_mass": Quantity(
        "Attention on the target of the initialisation",
        "share of attention",
        lambda side: side**-2,
        why_none="no record holds probes of a target",
        caption="A line that falls leaves the target which the initialisation has set.",
    ),
}


def over_epochs(study: Study, name: str, quantity: Quantity | None = None) -> dict[str, FacetGrid]:
    """Draw a quantity over epochs, 0 being the initialisation: a figure per dataset, a panel per row."""
    import seaborn as sns

    quantity = quantity or QUANTITIES[name]
    data = study.probes[study.probes["quantity"] == name]
    keys = ["column", "row", "seed", "epoch", "layer"]
    of_runs = data.groupby(keys, as_index=False, sort=False)["value"].mean()  # over heads
    figures = {}
    for column in present(study.columns, of_runs["column"]):
        its = of_runs[of_runs["column"] == column].reset_index(drop=True)
        rows = present(study.rows, its["row"])
        across, depth = 3 if len(rows) <= 12 else 5, its["layer"].nunique()
        grid = sns.relplot(
            its,
            kind="line",
            x="epoch",
            y="value",
            hue="layer",
            palette=sns.color_palette("viridis", depth + 1)[:depth],
            errorbar="sd",
            col="row",
            col_order=rows,
            legend="full",
            facet_kws={"legend_out": False},
            **{"marker": "o", "markersize": 3.5, **size(len(rows), 1.6 if len(rows) > 3 else 2.1, across)},
        )
        runs = {row: [run for run in study.cells[column, row] if run.probes] for row in rows}
        for row, axes in grid.axes_dict.items():
            side = runs[row][0].spec.model.attention_side
            if quantity.uniform and side:
                axes.axhline(quantity.uniform(side), color="black", linewidth=0.8, linestyle=":")
        ticks(grid, its["epoch"])
        grid.set_axis_labels("epoch", quantity.axis)
        for text in grid.legend.get_texts():
            text.set_text(f"layer {text.get_text()}")
        note = SD.replace("seeds", "heads and seeds", 1)
        note += f"; dotted: {quantity.reference}" if quantity.uniform else ""
        note = "; ".join(filter(None, [note, said(run for its in runs.values() for run in its)]))
        titles = {row: f"{row}: n={len(its)}{marked(its)}" for row, its in runs.items()}
        label = name if name in QUANTITIES else f"more-{file_part(name)}"
        figures[f"{label}-{file_part(column)}"] = finish(grid, f"{quantity.title}, {column}", note, titles)
    return figures


@CURVES.add(
    "more",
    "no record holds probes that have no figure of their own",
    caption="Which layers change as the model trains, and do the rows end alike?",
)
def more(study: Study) -> dict[str, FacetGrid]:
    """Draw probes that the schema of records does not name."""
    names = sorted(set(study.probes["quantity"]) - set(PROBES))
    return {file: grid for name in names for file, grid in over_epochs(study, name, Quantity(name, "")).items()}


for _place, (_name, _quantity) in enumerate(QUANTITIES.items(), 1):
    CURVES.add(_name, _quantity.why_none, caption=_quantity.caption, place=_place)(partial(over_epochs, name=_name))


def without_probes(study: Study) -> list[str]:
    """Return a line that names cells without probes, if other cells have some."""
    missing = [f"{row} ({column})" for (column, row), runs in study.cells.items() if not any(r.probes for r in runs)]
    if not missing or len(missing) == len(study.cells):
        return []
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return [f"without probes, so in no figure of them: {', '.join(missing[:NAMED])}{more}"]
