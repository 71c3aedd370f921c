"""Style of all figures: panels, looks of rows, intervals, titles, files."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from vitinit.analysis import command
from vitinit.analysis.frame import Study
from vitinit.benchmark.files.reading import read
from vitinit.benchmark.metrics.registry import OF_LABELS
from vitinit.benchmark.records.export import csv_text
from vitinit.benchmark.records.record import RunRecord
from vitinit.initializers.errors import plain as shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("matplotlibrc")
WIDTH = 6.5
"""Inches of a figure as wide as a page."""
LOOKS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("looks.yaml").read_text(encoding="utf-8"))
"""Colours of rows, and dashes, markers and the resolution of files."""
FEW = 10
"""An axis with so many points or fewer has ticks at points only, at each where there is room."""
MARK = "†"
"""Mark of rows with attention that nothing reads: that of patches in the last layer, if the class token answers alone.

No gradient reaches their queries there, so what is measured of them tells nothing of what training wants.
"""
SD = "mean over seeds, band: standard deviation"


@dataclass(eq=False)
class Panels:
    """A figure of panels, and the data that it shows."""

    figure: Figure
    axes: dict[Any, Axes]
    """By the name of the panel: of a dataset that of tables, of a row its label."""
    data: pd.DataFrame
    across: int
    """Number of panels side by side."""
    x: str = "epoch"
    y: str = ""
    """Names of the axes."""
    sharex: bool = True
    sharey: bool = True
    """True if all panels have the same horizontal axis, and the same vertical one."""
    room: float = 0.85
    """Share of the width that is beside the numbers or labels of an axis."""
    legend: dict[str, Any] = field(default_factory=dict)
    """Handles by label."""
    images: list[Any] = field(default_factory=list)

    def _repr_png_(self) -> bytes:
        return saved(self, "png")

    @property
    def letters(self) -> int:
        """Number of letters that fit above a panel."""
        return max(13, letters(self.room * self.figure.get_figwidth() / self.across))

    def align(self) -> None:
        """Give panels the same axes, with names and numbers at the edge of the figure.

        Axes that matplotlib shares take ten times as long.
        """
        every, many = list(self.axes.values()), len(self.axes) > 3 * self.across
        self.figure.supylabel(self.y if many else "")
        names = {"x": textwrap.fill(self.x, self.letters), "y": "" if many else self.y}
        for direction, shared in {"x": self.sharex, "y": self.sharey}.items():
            limits = np.array([getattr(axes, f"get_{direction}lim")() for axes in every])
            for place, axes in enumerate(every):
                outer = place + self.across >= len(every) if direction == "x" else place % self.across == 0
                axis = getattr(axes, f"{direction}axis")
                axis.set_label_text(names[direction] if outer else "")
                axis.set_tick_params(label1On=outer or not shared)
                axis.set_in_layout(outer or not shared)
                if shared:
                    axes.set(**{f"{direction}lim": (limits[:, 0].min(), limits[:, 1].max())})
                if not axis.get_label_text():
                    axis.set_label_coords(0, 0)  # nothing to find room for


def palette(labels: Iterable[str]) -> dict[str, str]:
    """Return a colour by row label, the same in every study where none is taken, or as light as its neighbour's."""
    colours: dict[str, str] = {}
    before = 0.0
    for label in labels:
        others = LOOKS["others"]
        first = int(sha256(label.encode()).hexdigest()[:8], 16) % len(others)
        tried = others[first:] + others[:first]
        best = min(tried, key=lambda colour: (colour in colours.values(), abs(lightness(colour) - before) <= 40))
        colours[label] = LOOKS["fixed"].get(label) or best
        before = lightness(colours[label])
    return colours


def lightness(colour: str) -> float:
    """Return how light a colour is in print, from 0 to 255."""
    return float(np.dot([0.3, 0.59, 0.11], list(bytes.fromhex(colour[1:]))))


def letters(inches: float) -> int:
    """Return how many letters of the figures' font fit into a width."""
    from matplotlib import rcParams

    return int(inches * 136 / rcParams["font.size"])


def panels(
    data: pd.DataFrame, names: Iterable[Any], height: float, across: int = 3, lowest: float = 1.2, **fields: Any
) -> Panels:
    """Return a figure with a panel for each name.

    Args:
        data: What is drawn.
        names: Of the panels.
        height: Of a panel, in inches, where a page is high enough.
        across: Number of panels side by side where the figure is as wide as a page.
        lowest: Inches of the lowest panel. If a page is not high enough for them, more stand side by side.
        fields: More of `Panels`.
    """
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    names, (width, page) = list(dict.fromkeys(names)), rcParams["figure.figsize"]
    across = max(1, round(across * width / WIDTH), math.ceil(len(names) / int(page / lowest)))
    across = 2 if len(names) == 4 and across == 3 else min(across, len(names))
    down = math.ceil(len(names) / across)
    figure = Figure((width, min(down * height, page)), layout="constrained")
    axes = {name: figure.add_subplot(down, across, place) for place, name in enumerate(names, 1)}
    for panel in axes.values():
        panel.spines[:].set_in_layout(False)  # ticks and their numbers are measured without them
    return Panels(figure, axes, data, across, **fields)


def lines(
    data: pd.DataFrame,
    over: str,
    value: str,
    col: str,
    colours: Mapping[Any, Any],
    height: float,
    across: int = 3,
    *,
    hue: str = "row",
    label: str = "{}",
    bounds: tuple[float, float] = (-math.inf, math.inf),
    **fields: Any,
) -> Panels:
    """Draw means over numbers: a panel per value of `col`, a line per value of `hue`, a band of one standard deviation.

    If the data have columns `low` and `high`, these are ends of bars in place of the band, and the axis is logarithmic.

    Args:
        data: What is drawn.
        over: Column of the horizontal axis.
        value: Column of the vertical axis.
        col: Column of the panels.
        colours: By value of `hue`, in their order.
        height: Of a panel, in inches.
        across: Number of panels side by side.
        hue: Column of the lines. A row or a head has a dash and a marker of its own.
        label: Of a line in the legend, where the panels are not the lines.
        bounds: Of the quantity: no band goes beyond.
        fields: More of `Panels`.
    """
    from matplotlib.ticker import FixedLocator

    ends, bars = ["low", "high"], "low" in data
    grid = panels(data, data[col], height, across, **fields)
    groups = data.groupby(list(dict.fromkeys([col, hue, over])))
    points = groups[value].agg(["mean", "std"])
    for end, sign in zip(ends, (-1, 1), strict=True):
        points[end] = groups[end].first() if bars else points["mean"] + sign * points["std"]
    points[ends] = points[ends].clip(*bounds)
    points = points.reset_index()
    for place, (name, colour) in enumerate(colours.items()):
        dashes, marker = ([], "o") if hue == "layer" else LOOKS["lines"][place % len(LOOKS["lines"])]
        for panel, line in points[points[hue] == name].groupby(col):
            axes = grid.axes[panel]
            look = {"dashes": dashes, "marker": marker, "color": colour}
            (drawn,) = axes.plot(line[over], line["mean"], mec="white", zorder=3, **look)
            draw = axes.vlines if bars else partial(axes.fill_between, alpha=0.2, linewidth=0.8)
            draw(line[over], line["low"], line["high"], color=colour)
            if hue != col:
                grid.legend.setdefault(label.format(name), drawn)
    known = sorted(set(data[over]))
    ticks = known[:: math.ceil(3 * len(known) / grid.letters)]
    for axes in grid.axes.values():
        if bars and known[0] > 0:
            axes.set_xscale("log")
            plain(axes.xaxis)
        if len(known) <= FEW:
            axes.xaxis.set_major_locator(FixedLocator(ticks))
            axes.xaxis.set_major_formatter("{x:,.10g}")
            if known[-1] >= 1000:
                axes.tick_params(axis="x", labelrotation=30)
            axes.minorticks_off()
    return grid


def set_defaults(width: float = WIDTH, font: float = 8) -> None:
    """Set matplotlib up for all figures, of a width in inches and a font size in points."""
    import matplotlib as mpl

    warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as a box
    mpl.rc_file(STYLE)  # on top of defaults, not of a matplotlibrc
    mpl.rcParams.update({"figure.figsize": [width, mpl.rcParams["figure.figsize"][1]], "font.size": font})


def present(order: Iterable[str], values: Iterable[str]) -> list[str]:
    """Return the labels that occur, in their order."""
    return list(filter(set(values).__contains__, order))


def finish(
    study: Study, grid: Panels, title: str, note: str, titles: Mapping[Any, str] | None = None, bar: str = ""
) -> Panels:
    """Write titles of panels and figure, put the legend below, and make room for both.

    Args:
        study: Its columns have their names in place of labels.
        grid: The panels.
        title: Of the figure.
        note: In the line below it.
        titles: Of panels, by their name; others have their name.
        bar: What the colours of images mean, where panels are images.
    """
    from matplotlib import rcParams

    for name, axes in grid.axes.items():
        size = "medium" if grid.across < 6 else "small"
        axes.set_title(textwrap.fill(study.printed((titles or {}).get(name, str(name))), grid.letters), size=size, y=1)
    width, page = rcParams["figure.figsize"]
    head = "\n".join(textwrap.fill(study.printed(text), letters(width)) for text in (title, note))
    grid.figure.suptitle(head)
    height = head.count("\n") + 2
    if grid.legend:
        columns = max(1, int(0.82 * letters(width) / (max(map(len, grid.legend)) + 7)))
        grid.figure.legend(grid.legend.values(), grid.legend, loc="outside lower center", ncols=columns)
        height += math.ceil(len(grid.legend) / columns) + 1
    grid.figure.set_figheight(min(page, grid.figure.get_figheight() + 0.0175 * rcParams["font.size"] * height))
    if grid.images:
        grid.figure.set_layout_engine("compressed")
        scale = grid.figure.colorbar(grid.images[0], ax=list(grid.axes.values()), label=bar, shrink=0.6, aspect=30)
        if scale.ax.get_yscale() == "log":
            plain(scale.ax.yaxis)
    else:
        grid.align()
    grid.axes = {study.names.get(name, name): axes for name, axes in grid.axes.items()}
    return grid


def show(
    data: pd.DataFrame, maps: Mapping[Any, NDArray[Any]], height: float, across: int, lowest: float = 1.2, **scale: Any
) -> Panels:
    """Draw a matrix in colours in each panel, on one scale as of `imshow`; sizes are those of `panels`."""
    grid = panels(data, maps, height, across, lowest)
    for name, axes in grid.axes.items():
        grid.images.append(axes.imshow(maps[name], **scale))
        axes.xaxis.set_visible(False)
        axes.yaxis.set_visible(False)
        axes.spines[:].set_visible(False)
    return grid


def plain(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as plain numbers: text is not read as mathematics here."""
    from matplotlib.ticker import NullFormatter

    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def with_seeds(data: pd.DataFrame, *by: str) -> dict[str, str]:
    """Return titles of panels by column: its label, and the number of seeds behind each point, as `n=3 to 5`."""
    counts = data.groupby(["column", *by])["seed"].nunique().groupby("column").agg(["min", "max"])
    return {
        str(column): f"{column}: n={low}" + (f" to {high}" if high > low else "")
        for column, low, high in counts.itertuples()
    }


def marked(runs: Iterable[RunRecord]) -> str:
    """Return the suffix of the name of a row."""
    unread = any(not run.spec.model.reads_patches and run.last.field == OF_LABELS for run in runs)
    return f" {MARK}" if unread else ""


def with_mark(row: str, run: RunRecord, most: int = 60) -> str:
    """Return the name of a row with its mark; a long name is shortened."""
    mark = marked([run])
    return shortened(row, most - len(mark)) + mark


def said(runs: Iterable[RunRecord]) -> str:
    """Return the meaning of the mark; empty where there is none."""
    return f"{MARK} answers by its class token: nothing reads the patches of the last layer" if marked(runs) else ""


def file_part(*labels: str) -> str:
    """Return labels as a part of a file's name."""
    return "-".join(re.sub(r"[^\w.-]+", "_", label).strip("_")[:80] for label in labels)


def digest(data: pd.DataFrame) -> str:
    """Return a digest of what a figure shows, to six digits, off ties: processors differ beyond."""
    off_ties = data.apply(lambda column: column * (1 + 1e-9) if column.dtype == float else column)
    return sha256(off_ties.to_csv(index=False, float_format="%.6g").encode()).hexdigest()


def save(grid: Panels, folder: Path, name: str) -> None:
    """Write a figure as PDF and PNG, and its data as CSV, without dates: the same records give the same bytes.

    Raises:
        VitinitError: a file cannot be written.
    """
    save_png(grid, folder / f"{name}.png")
    command.write(folder / f"{name}.pdf", saved(grid, "pdf", CreationDate=None))
    command.write(folder / f"{name}.csv", csv_text(grid.data, float_format="%.10g"))


def save_png(grid: Panels, path: Path) -> None:
    """Write a figure as PNG that holds the digest of its data."""
    command.write(path, saved(grid, "png", Software=None, Description=digest(grid.data)))


def shows(path: Path, grid: Panels) -> bool:
    """Return True if a PNG was drawn from the data of this figure."""
    from PIL import Image

    try:
        return Image.open(io.BytesIO(read(path)), formats=["PNG"]).info.get("Description") == digest(grid.data)
    except Exception:  # what PIL raises for a file that is no picture is of many types
        return False


def saved(grid: Panels, ending: str, **metadata: str | None) -> bytes:
    """Return the content of a figure's file. It is laid out once, for all of them."""
    import matplotlib as mpl

    buffer, tight = io.BytesIO(), "tight" if grid.images else None
    svg: Any = {"svg.fonttype": "none", "svg.hashsalt": "vitinit", "savefig.transparent": ending == "svg"}
    with mpl.rc_context(svg, STYLE):
        if layout := grid.figure.get_layout_engine():
            layout.execute(grid.figure)
            grid.figure.set_layout_engine(None)
        grid.figure.savefig(buffer, format=ending, metadata=metadata, dpi=LOOKS["dpi"][ending], bbox_inches=tight)
    return buffer.getvalue()
