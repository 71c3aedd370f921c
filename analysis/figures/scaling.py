"""Gains over a number: width, depth, epochs or training images."""

from collections.abc import Iterable

import pandas as pd

from vitinit.analysis.comparison import MAIN
from vitinit.analysis.figures.gains import gain_name
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.figures.style import Panels, finish, lines, palette, present, with_seeds
from vitinit.analysis.frame import Study
from vitinit.analysis.tables.scaling import scaling


def over_numbers(
    study: Study, data: pd.DataFrame, x: str, y: str, title: str, rows: Iterable[str], note: str = ""
) -> Panels:
    """Draw means with intervals over a number, a panel per `column`, a line per `row`.

    Args:
        study: The records.
        data: With columns `x`, `value`, `row`, `column` and `seed`, and the ends of intervals `low` and `high`.
        x: Name of the axis.
        y: Name of the values; of a gain, a line marks 0.
        title: Of the figure.
        rows: All rows, in their order.
        note: Addition to the note.
    """
    colours = palette(present(rows, data["row"]))
    grid = lines(data, "x", "value", "column", colours, 2.5, 2, x=x, y=y, sharey=False)
    for column, axes in grid.axes.items():
        if "gain" in (y + column).lower():
            axes.axhline(0, color="black", linewidth=0.8)
    return finish(study, grid, title, f"mean over seeds with 95 % interval{note}", with_seeds(data, "row", "x"))


@FIGURES.add(
    "scaling",
    "no initialisation at three widths, depths, lengths or sizes of training set beside its base",
    caption="Each point is the gain at the end of training at this value. Nothing between the points was run.",
)
def gains_over_axis(study: Study) -> dict[str, Panels]:
    """Draw the gain by seed over the axis: a panel per dataset, a line per initialisation."""
    if not (axis_and_series := scaling(study)):
        return {}
    axis, series = axis_and_series
    data = pd.DataFrame(
        [
            (line.place, f"{line.label} − {line.over}", seed, x, value, gain.low, gain.high)
            for line in series
            for x, gain in line.gains.items()
            for seed, value in gain.by_seed.items()
        ],
        columns=["column", "row", "seed", "x", "value", "low", "high"],
    )
    named = sorted({x for line in series for x, gain in line.gains.items() if gain.family == MAIN})
    note = f"; at {', '.join(map('{:,g}'.format, named))} with the noise of all rows, as the grid names it"
    note, rows = note if named and study.layout.analysis.interval == "pooled" else "", dict.fromkeys(data["row"])
    return {"scaling": over_numbers(study, data, axis, gain_name(study), f"Gain over {axis}", rows, note)}
