"""Attention over epochs: a figure per quantity and dataset, a panel per row, a line per layer."""

import math
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.style import SD, Panels, file_part, finish, lines, marked, palette, said
from vitinit.analysis.frame import Study

QUANTITIES = yaml.safe_load(Path(__file__).with_name("quantities.yaml").read_text(encoding="utf-8"))
"""Title, name of the axis and reading help of each quantity."""
MEASURED = (*QUANTITIES, "gating")
"""Fields of a probe; other quantities are in its `more`."""


def distances(side: int) -> Any:
    """Return the distance of any two tokens of a square grid, side x side x side x side."""
    down, across, to_down, to_across = np.indices((side,) * 4)
    return np.hypot(down - to_down, across - to_across)


UNIFORM: dict[str, Callable[[int], float]] = {
    **dict.fromkeys(["nonlocality", "nonlocality_reference"], lambda side: distances(side).mean()),
    "attention_entropy": lambda side: math.log(side**2),
    # as `runners.probes` measures it, from the token at side // 2
    "effective_receptive_field": lambda side: distances(side)[side // 2, side // 2].mean(),
    "impulse_mass": lambda side: side**-2,
}
"""Value of a quantity with uniform attention, or dependence, on a token grid of so many tokens a side."""


@lru_cache(maxsize=2)
def probes(study: Study) -> pd.DataFrame:
    """Return a line per finished run, probed epoch, quantity, layer and head (1 without heads)."""
    lines = []
    for (column, row), runs in study.cells.items():
        for run, probe in [(record, probe) for record in runs for probe in record.probes]:
            for quantity, layers in ({name: getattr(probe, name) for name in MEASURED} | probe.more).items():
                for layer, heads in enumerate(layers or [], 1):
                    for head, value in enumerate(heads if isinstance(heads, list) else [heads], 1):
                        if value is not None:
                            where = run.run_id, row, column, run.spec.seed, probe.epoch
                            lines.append((*where, quantity, layer, head, value))
    return pd.DataFrame(
        lines, columns=["run_id", "row", "column", "seed", "epoch", "quantity", "layer", "head", "value"]
    )


def over_epochs(study: Study, name: str) -> dict[str, Panels]:
    """Draw a quantity over epochs, 0 being the initialisation: a figure per dataset, a panel per row."""
    from matplotlib import colormaps

    quantity, uniform = QUANTITIES.get(name, {"title": name, "axis": ""}), UNIFORM.get(name)
    bounds = (0 if uniform else -math.inf, math.inf)
    data = probes(study).query("quantity == @name").groupby(["column", "row", "seed", "epoch", "layer"], sort=False)
    figures = {}
    for column, means in data["value"].mean().reset_index().groupby("column", sort=False):
        runs = {row: [run for run in study.cells[str(column), row] if run.probes] for row in means["row"].unique()}
        layers = sorted(set(means["layer"]))
        colours = {layer: colormaps["viridis"](place / (len(layers) + 1)) for place, layer in enumerate(layers, 1)}
        layout = {"hue": "layer", "label": "layer {}", "y": quantity["axis"]}
        grid = lines(means, "epoch", "value", "row", colours, 1.6, 3 if len(runs) <= 12 else 5, bounds=bounds, **layout)
        for row, axes in grid.axes.items():
            maps = runs[row][0].spec.model.attention_maps
            if uniform and maps:
                axes.axhline(uniform(math.isqrt(maps[2])), color="black", linewidth=0.8, linestyle=":")
        marks = "dotted: all tokens alike" if uniform else ""
        note = "; ".join(filter(None, [SD, marks, said(run for of_row in runs.values() for run in of_row)]))
        seeds = {len(of_row) for of_row in runs.values()}
        several = len(seeds) > 1
        titles = {row: row + (f": n={len(of_row)}" if several else "") + marked(of_row) for row, of_row in runs.items()}
        head = f"{quantity['title']}, {column}" + ("" if several else f": n={min(seeds)}")
        label = name if uniform else f"more-{file_part(name)}"
        figures[f"{label}-{file_part(str(column))}"] = finish(study, grid, head, note, titles)
    return figures


@CURVES.add(
    "more",
    "no record holds probes that have no figure of their own",
    caption="Which layers change as the model trains, and do the rows end alike?",
)
def more(study: Study) -> dict[str, Panels]:
    """Draw probes that the schema of records does not name."""
    names = sorted(set(probes(study)["quantity"]) - {*MEASURED})
    return {file: grid for name in names for file, grid in over_epochs(study, name).items()}


for _name, _quantity in QUANTITIES.items():
    CURVES.add(_name, "no record holds such probes", caption=_quantity["caption"])(partial(over_epochs, name=_name))


@CURVES.add(
    "gating",
    "no record holds probes of gates (ConViT has some)",
    caption="A gate that falls lets its head look at content in place of position.",
)
def gating(study: Study) -> dict[str, Panels]:
    """Draw the gates of each GPSA layer, as in Figure 6 of arXiv 2103.10697: a line per head, dotted their mean.

    A figure per ConViT and dataset, of the first seed.
    """
    figures = {}
    for (column, row), gates in probes(study).query("quantity == 'gating'").groupby(["column", "row"], sort=False):
        seed = gates["seed"].min()
        first = gates[gates["seed"] == seed].assign(head="head " + gates["head"].astype(str))
        grid = lines(first, "epoch", "value", "layer", palette(first["head"]), 1.9, 5, hue="head", y="gate")
        means = first.groupby(["epoch", "layer"])["value"].mean().unstack()
        for layer, axes in grid.axes.items():
            axes.plot(means[layer], color="black", linewidth=1.6, linestyle=":")
            axes.set_ylim(0, 1)
        title = "Share of positional attention: sigmoid of each head's gate"
        note = f"{row}, {column}, seed {seed} (of {gates['seed'].nunique()}); dotted: mean of the heads"
        titles = {layer: f"layer {layer}" for layer in grid.axes}
        figures[f"gating-{file_part(str(column), str(row))}"] = finish(study, grid, title, note, titles)
    return figures
