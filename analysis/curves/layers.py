"""Attention over epochs: a figure per quantity and dataset, a panel per row, a line per layer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, mean
from typing import TYPE_CHECKING

from vitinit.analysis.curves.probed import NARROWEST, WIDEST, coincide, outer_labels, probed
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import (
    BAND,
    LineStyle,
    counted,
    file_part,
    legend_below,
    line_with_band,
    panel_title,
    panels,
    safe,
)
from vitinit.analysis.series import Chart, Line, Panel, Scale, lines, mean_distance
from vitinit.analysis.unread import marked, said
from vitinit.benchmark.records.record import Probe, RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LIGHTEST = 0.87
"""Lightest shade of viridis in use: its yellow end is invisible on white."""


@dataclass(frozen=True)
class Quantity:
    """A quantity that a probe measures in each layer."""

    title: str
    axis: str
    of: Callable[[Probe], list[float] | None]
    """A number per layer, from the input on; None where a run has none."""
    uniform: Callable[[int], float] | None
    """Its value with uniform attention, or dependence, on a token grid of so many tokens a side; None draws none."""
    over: str = "heads and seeds"
    """Dimension that lines are the mean over."""
    reference: str = "uniform attention"
    """Name of the value of `uniform`, for the title."""
    why_none: str = "no record holds probes"
    caption: str = ""
    """Reading help, in a sentence."""


def mean_distance_from_centre(side: int) -> float:
    """Receptive field of a token that depends on all patches alike: `runners.probes` takes that at side // 2."""
    return mean(math.hypot(down - side // 2, across - side // 2) for down in range(side) for across in range(side))


def _over_heads(layers: Sequence[float | Sequence[float | None] | None] | None) -> list[float] | None:
    """The mean of each layer over the heads that have a number; None where a layer has none."""
    by_layer = [heads if isinstance(heads, Sequence) else [heads] for heads in layers or ()]
    known = [[head for head in heads if head is not None] for heads in by_layer]
    return [fmean(heads) for heads in known] if known and all(known) else None


QUANTITIES = {
    "nonlocality": Quantity(
        "Nonlocality",
        "nonlocality (tokens)",
        lambda probe: _over_heads(probe.nonlocality),
        mean_distance,
        caption="The lower a line, the more local is the attention of its layer.",
    ),
    "nonlocality_reference": Quantity(
        "Nonlocality as the released ConViT code computes it",
        "nonlocality (tokens)",
        lambda probe: _over_heads(probe.nonlocality_reference),
        mean_distance,
        caption="Layers are fed patches without positions, so only GPSA is local by these, and no ViT compares to it.",
    ),
    "attention_entropy": Quantity(
        "Entropy of attention",
        "entropy (nats)",
        lambda probe: _over_heads(probe.attention_entropy),
        lambda side: math.log(side**2),
        caption="The lower a line, the fewer tokens its layer looks at.",
    ),
    "effective_receptive_field": Quantity(
        "Radius of the effective receptive field",
        "radius (tokens)",
        lambda probe: probe.effective_receptive_field,
        mean_distance_from_centre,
        "seeds",
        "all patches count alike",
        caption="The higher a line, the further away in the image is what a token depends on after that layer.",
    ),
    "impulse_mass": Quantity(
        "Attention on the target of the initialisation",
        "share of attention",
        lambda probe: _over_heads(probe.impulse_mass),
        lambda side: side**-2,
        why_none="no record holds probes of a target",
        caption="A line that falls leaves the target which the initialisation has set.",
    ),
}


def charts(study: Study, name: str) -> dict[str, Chart]:
    """A quantity over epochs, 0 being the initialisation: a chart per dataset, a panel per row, a line per layer."""
    return dict(_charts(study, name, QUANTITIES[name]))


def over_epochs(study: Study, name: str) -> dict[str, Figure]:
    """The same as figures."""
    return {file: _figure(chart) for file, chart in charts(study, name).items()}


def _charts(study: Study, name: str, quantity: Quantity) -> Iterator[tuple[str, Chart]]:
    for column, cells in probed(study).items():
        having = {row: its for row, runs in cells.items() if (its := [r for r in runs if quantity.of(r.probes[0])])}
        panels, scale = [], Scale("epoch", quantity.axis, "layer")
        lines_of = _lines(having, quantity) if having else {}
        for row, runs in having.items():
            side = runs[0].spec.model.attention_side
            reference = quantity.uniform(side) if quantity.uniform and side else None
            title = f"{row}: n={len(runs)}{marked(runs)}"
            panels.append(Panel(title, column, scale, lines_of[row], row, reference))
        if panels:
            dotted = quantity.reference if quantity.uniform else ""
            note = said(run for runs in having.values() for run in runs)
            yield f"{name}-{file_part([column])}", Chart(quantity.title, column, panels, quantity.over, dotted, note)


def _lines(cells: dict[str, list[RunRecord]], quantity: Quantity) -> dict[str, dict[str, Line]]:
    """By row and layer."""
    import pandas as pd

    values = pd.DataFrame(
        [
            ((row, layer), probe.epoch, value)
            for row, runs in cells.items()
            for run in runs
            for probe in run.probes
            for layer, value in enumerate(quantity.of(probe) or [], 1)
        ],
        columns=["line", "epoch", "value"],
    )
    found: dict[str, dict[str, Line]] = {row: {} for row in cells}
    for (row, layer), its in lines(values.groupby(["line", "epoch"])["value"]).items():
        found[row][f"layer {layer}"] = its
    return found


def _figure(chart: Chart) -> Figure:
    title = textwrap.fill(f"{safe(chart.title)}, {safe(chart.where)}", 90)
    caption = BAND.replace("seeds", chart.over, 1)
    caption += f"; dotted: {chart.reference}" if chart.reference else ""
    caption += f"\n{chart.note}" if chart.note else ""
    count = len(chart.panels)
    figure, grid = panels(count, 1.45 if count > 3 else 1.9, title, caption, sharex=True, sharey=True)
    depth = max(len(panel.lines) for panel in chart.panels)
    handles: dict[str, Line2D] = {}
    for axes in grid:
        axes.autoscale(False)  # until all is drawn: with shared axes, every line would scale every panel
    for axes, panel in zip(grid, chart.panels, strict=True):
        handles |= _draw(axes, panel, depth)
        if panel.reference is not None:
            axes.axhline(panel.reference, color="black", linewidth=0.8, linestyle=":")
        axes.grid()
    for axes in grid:
        axes.autoscale(True)
    low, high = grid[0].get_ylim()
    for axes, panel in zip(grid, chart.panels, strict=True):
        same = " (layers coincide)" if coincide(list(panel.lines.values()), high - low) else ""
        row = panel.row or ""
        panel_title(axes, safe(row) + panel.title.removeprefix(row) + same)  # a long label loses its own end
    outer_labels(grid, chart.panels[0].scale.y)
    legend_below(figure, list(handles.values()), counted("layer", len(handles)), length=1.0)
    return figure


def _draw(axes: Axes, panel: Panel, depth: int) -> dict[str, Line2D]:
    """Lines by layer."""
    import matplotlib as mpl
    import numpy as np

    colours = mpl.colormaps["viridis"](np.linspace(0, LIGHTEST, depth))
    widths = np.linspace(WIDEST, NARROWEST, depth)
    handles = {}
    for place, (layer, numbers) in enumerate(panel.lines.items()):
        handles[layer] = line_with_band(axes, numbers, LineStyle(mpl.colors.to_hex(colours[place])))
        handles[layer].set_linewidth(widths[place])
    return handles


@CURVES.numbers("more")
def more_charts(study: Study) -> dict[str, Chart]:
    """Probes that the schema of records does not name, each over epochs."""
    names = {name for run in study.contents.done.values() for probe in run.probes for name in probe.more}
    return {
        file: chart
        for name in sorted(names)
        for file, chart in _charts(study, f"more-{file_part([name])}", _other(name))
    }


@CURVES.add(
    "more",
    "no record holds probes that have no figure of their own",
    caption="Which layers change as the model trains, and do the rows end alike?",
)
def more(study: Study) -> dict[str, Figure]:
    """The same as figures."""
    return {file: _figure(chart) for file, chart in more_charts(study).items()}


def _other(name: str) -> Quantity:
    def of(probe: Probe) -> list[float] | None:
        return _over_heads(probe.more.get(name))

    return Quantity(name, "", of, None)


for _place, (_name, _quantity) in enumerate(QUANTITIES.items(), 1):
    CURVES.add(_name, _quantity.why_none, caption=_quantity.caption, place=_place)(partial(over_epochs, name=_name))
    CURVES.numbers(_name)(partial(charts, name=_name))
