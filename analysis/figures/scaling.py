"""Gains over width, depth, epochs or training images."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import label_axes, legend_below, looks, panel_title, panels, safe, score_name, span
from vitinit.analysis.tables.scaling import Scaling, scaling, scaling_over, text_of
from vitinit.analysis.text import capitalised

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

APART = 0.012
"""Lines beside one another are so much of the axis apart, so that no interval hides another."""


@FIGURES.add(
    "scaling",
    "no initialisation at three widths, depths, lengths or sizes of training set beside its base",
    caption="A gain that falls towards 0 on the right is a head start; one that stays is a higher end.",
    place=12,
)
def figure(study: Study) -> dict[str, Figure]:
    """Gain by seed over the axis, mean with 95 % interval: a panel per dataset, a line per initialisation."""
    found = scaling(study)
    return {"scaling": _gains(study, found)} if found else {}


def over(study: Study, axis: str) -> dict[str, Figure]:
    """Draw score and gain over a field that the study has several numbers of.

    Raises:
        VitinitError: it has not.
    """
    found = scaling_over(study, axis)
    slug = re.sub(r"\W+", "-", axis)
    gains = {f"over-{slug}-gain": _gains(study, found)} if any(map(found.gains, found.series.values())) else {}
    return {f"over-{slug}": _scores(study, found), **gains}


def _scores(study: Study, found: Scaling) -> Figure:
    from vitinit.analysis.stats import floats, t_interval

    places = list(dict.fromkeys(place for place, _ in found.series))
    title = f"{capitalised(score_name(study.runs))} over {found.axis}"
    drawn, grid = panels(len(places), 2.4, title, "mean over seeds with 95 % interval (t)", sharey=True)
    known, handles = looks(study), dict[str, "Line2D"]()
    for axes, place in zip(grid, places, strict=True):
        for each in (each for each in found.series.values() if each.place == place):
            look = known[next(iter(each.rows.values()))]
            means = [float(scores.mean()) for scores in each.scores.values()]
            (line,) = axes.plot(list(each.scores), means, **{**look.line, **look.point})
            for at, scores in each.scores.items():
                if interval := t_interval(floats(scores)):
                    axes.plot((at, at), (interval.low, interval.high), color=look.color, linewidth=1)
            handles.setdefault(each.label, line)
        _ticks(axes, found.values)
        seeds = {
            len(scores) for each in found.series.values() if each.place == place for scores in each.scores.values()
        }
        panel_title(axes, f"{safe(place)}: n={span(seeds)}")
    label_axes(grid, found.axis, score_name(study.runs))
    legend_below(drawn, list(handles.values()), [safe(label) for label in handles])
    return drawn


def _ticks(axes: Axes, values: list[float]) -> None:
    """A logarithmic axis with its values, where all are above 0."""
    if min(values) > 0:
        axes.set_xscale("log")
    axes.set_xticks(values, [text_of(value) for value in values])
    axes.minorticks_off()
    axes.grid()


def _gains(study: Study, found: Scaling) -> Figure:
    from vitinit.analysis.stats import floats, t_interval

    places = list(dict.fromkeys(place for place, _ in found.series))
    drawn, grid = panels(
        len(places), 2.4, f"Gain over {found.axis}", "by seed: mean with 95 % interval (t)", sharey=True
    )
    known = looks(study)
    handles: dict[str, Line2D] = {}
    for axes, place in zip(grid, places, strict=True):
        its = [each for each in found.series.values() if each.place == place and found.gains(each)]
        room = (max(found.values) / min(found.values)) ** APART if min(found.values) > 0 else 1.0
        for turn, each in enumerate(its):
            gains, look = found.gains(each), known[next(iter(each.rows.values()))]
            x = [value * room ** (turn - (len(its) - 1) / 2) for value in gains]
            (line,) = axes.plot(x, [float(gain.mean()) for gain in gains.values()], **{**look.line, **look.point})
            for at, gain in zip(x, gains.values(), strict=True):
                if interval := t_interval(floats(gain)):
                    axes.plot((at, at), (interval.low, interval.high), color=look.color, linewidth=1)
            handles.setdefault(f"{each.label} − {each.base}", line)
        axes.axhline(0, color="black", linewidth=0.8, zorder=1)
        _ticks(axes, found.values)
        seeds = {len(gain) for each in its for gain in found.gains(each).values()}
        panel_title(axes, f"{safe(place)}: n={span(seeds)}" if seeds else safe(place))
    label_axes(grid, found.axis, f"difference in {score_name(study.runs)} (points)")
    legend_below(drawn, list(handles.values()), [safe(label) for label in handles])
    return drawn
