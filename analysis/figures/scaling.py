"""Gains over width, depth, epochs or training images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import Study
from vitinit.analysis.plotting.style import label_axes, legend_below, looks, panel_title, panels, safe, score_name, span
from vitinit.analysis.tables.scaling import scaling, text_of

if TYPE_CHECKING:
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
    from vitinit.analysis.stats import floats, t_interval

    found = scaling(study)
    if not found:
        return {}
    places = list(dict.fromkeys(place for place, _ in found.series))
    drawn, grid = panels(
        len(places), 2.4, f"Gain over {found.axis}", "by seed: mean with 95 % interval (t)", sharey=True
    )
    known = looks(study)
    handles: dict[str, Line2D] = {}
    for axes, place in zip(grid, places, strict=True):
        its = [each for each in found.series.values() if each.place == place and found.gains(each)]
        room = (max(found.values) / min(found.values)) ** APART
        for turn, each in enumerate(its):
            gains, look = found.gains(each), known[next(iter(each.rows.values()))]
            x = [value * room ** (turn - (len(its) - 1) / 2) for value in gains]
            (line,) = axes.plot(x, [float(gain.mean()) for gain in gains.values()], **{**look.line, **look.point})
            for at, gain in zip(x, gains.values(), strict=True):
                if interval := t_interval(floats(gain)):
                    axes.plot((at, at), (interval.low, interval.high), color=look.color, linewidth=1)
            handles.setdefault(f"{each.label} − {each.base}", line)
        axes.axhline(0, color="black", linewidth=0.8, zorder=1)
        axes.set_xscale("log")
        axes.set_xticks(found.values, [text_of(value) for value in found.values])
        axes.minorticks_off()
        axes.grid()
        seeds = {len(gain) for each in its for gain in found.gains(each).values()}
        panel_title(axes, f"{safe(place)}: n={span(seeds)}" if seeds else safe(place))
    label_axes(grid, found.axis, f"difference in {score_name(study.runs)} (points)")
    legend_below(drawn, list(handles.values()), [safe(label) for label in handles])
    return {"scaling": drawn}
