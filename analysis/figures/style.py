"""Style of all figures: panels, looks of rows, intervals, titles, files."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis import command
from vitinit.benchmark.records.export import csv_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from vitinit.analysis.comparison import Comparison

STYLE = Path(__file__).with_name("matplotlibrc")
WIDTH = 6.5
"""Inches of a figure as wide as a page."""
FIXED = {
    **{"Kaiming uniform": "#000000", "Trunc normal": "#7f7f7f", "Mimetic": "#009E73", "Imp.-3": "#D55E00"},
    **{"Imp.-5": "#CC79A7", "ConViT": "#0072B2"},
}
"""Colours of the papers' rows, of Okabe and Ito's palette, told apart with every common colour blindness."""
OTHERS = ("#E69F00", "#56B4E9", "#882255", "#999933", "#332288", "#44AA99", "#A6761D", "#AA4499", "#117733", "#CC6677")
"""Colours of other rows: that which follows from the label, or the next one that is free."""
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (6, 1.5)), (0, (5, 1, 1, 1, 1, 1)))
MARKERS = "osD^v"
FEW = 10
"""An axis with so many points or fewer has ticks at points only, at each where there is room."""
DPI = {"png": 160, "pdf": 300, "svg": 100}
"""Resolution by format; in the last two of images alone."""
SD = "mean over seeds, band: standard deviation"


@dataclass(eq=False)
class Panels:
    """A figure of panels, and the data that it shows."""

    figure: Figure
    axes: dict[Any, Axes]
    """By the name of the panel."""
    data: pd.DataFrame
    across: int
    """Number of panels side by side."""
    x: str = ""
    y: str = ""
    """Names of the axes."""
    sharey: bool = True
    """True if all panels have the same vertical axis, as they have the same horizontal one."""
    legend: dict[str, Any] = field(default_factory=dict)
    """Handles by label."""

    def _repr_png_(self) -> bytes:
        return saved(self, "png")

    @property
    def letters(self) -> int:
        """Number of letters that fit above a panel."""
        return max(13, letters(0.85 * self.figure.get_figwidth() / self.across))

    @property
    def images(self) -> list[Any]:
        """The images that are panels."""
        return [image for axes in self.axes.values() for image in axes.get_images()]

    def align(self) -> None:
        """Give panels the same axes, with names and numbers at the edge of the figure.

        Axes that matplotlib shares take ten times as long.
        """
        every = list(self.axes.values())
        many = len(every) > 3 * self.across
        if many:
            self.figure.supylabel(self.y)
        x, y = [axes.get_xlim() for axes in every], [axes.get_ylim() for axes in every]
        for place, axes in enumerate(every):
            bottom, left = place + self.across >= len(every), place % self.across == 0
            axes.set_xlim(min(x)[0], max(high for _, high in x))
            axes.tick_params(labelbottom=bottom)
            axes.set_xlabel(self.x if bottom else "")
            axes.set_ylabel(self.y if left and not many else "")
            if self.sharey:
                axes.set_ylim(min(y)[0], max(high for _, high in y))
                axes.tick_params(labelleft=left)


def lightness(colour: str) -> float:
    """Return how light a colour is in print, from 0 to 1."""
    red, green, blue = bytes.fromhex(colour[1:])
    return (0.3 * red + 0.59 * green + 0.11 * blue) / 255


def palette(labels: Iterable[str]) -> dict[str, str]:
    """Return a colour by row label, the same in every study where none is taken, or as light as its neighbour's."""
    found: dict[str, str] = {}
    before = "#000000"
    for label in labels:
        first = int(sha256(label.encode()).hexdigest()[:8], 16) % len(OTHERS)
        tried = OTHERS[first:] + OTHERS[:first]
        free = [colour for colour in tried if colour not in found.values()] or tried
        apart = [colour for colour in free if abs(lightness(colour) - lightness(before)) > 0.15] or free
        before = found[label] = FIXED.get(label) or apart[0]
    return found


def letters(inches: float) -> int:
    """Return how many letters of the figures' font fit into a width."""
    from matplotlib import rcParams

    return int(inches * 136 / rcParams["font.size"])


def side_by_side(number: int, across: int = 3, lowest: float = 1.2) -> int:
    """Return how many panels stand side by side.

    Args:
        number: Of all panels.
        across: Number that a page is wide enough for.
        lowest: Inches of the lowest panel. If a page is not high enough for them, more stand side by side.
    """
    from matplotlib import rcParams

    width, page = rcParams["figure.figsize"]
    across = max(1, round(across * width / WIDTH), math.ceil(number / int(page / lowest)))
    return 2 if number == 4 and across == 3 else min(across, number)


def panels(data: pd.DataFrame, names: Iterable[Any], height: float, across: int, **fields: Any) -> Panels:
    """Return a figure with a panel for each name.

    Args:
        data: What is drawn.
        names: Of the panels.
        height: Of a panel, in inches, where a page is high enough.
        across: Number of panels side by side, which fill the width of the figure.
        fields: More of `Panels`.
    """
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(names))
    down = math.ceil(len(names) / across)
    width, page = rcParams["figure.figsize"]
    figure = Figure((width, min(down * height, page)), layout="constrained")
    axes = {name: figure.add_subplot(down, across, place) for place, name in enumerate(names, 1)}
    return Panels(figure, axes, data, across, **fields)


def lines(
    data: pd.DataFrame,
    x: str,
    y: str,
    col: str,
    grid: Panels,
    colours: Mapping[Any, Any],
    *,
    hue: str = "row",
    label: str = "{}",
    styled: bool = False,
    interval: Callable[[Any], tuple[float, float]] | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    log: bool = False,
) -> Panels:
    """Draw means with their spread over x, a panel per value of `col`, a line per value of `hue`.

    Args:
        data: What is drawn.
        x: Column of the horizontal axis.
        y: Column of the vertical axis.
        col: Column of the panels.
        grid: The panels.
        colours: By value of `hue`, in their order.
        hue: Column of the lines.
        label: Of a line in the legend, where the panels are not the lines.
        styled: True if each line has a dash and a marker of its own.
        interval: Ends of the bars, from the values at a point. Default: a band of one standard deviation.
        bounds: Of the quantity: no band goes beyond.
        log: True for a logarithmic x.
    """
    import pandas as pd

    values = data.groupby(list(dict.fromkeys([col, hue, x])))[y]
    points = values.agg(["mean", "std"])
    points["low"], points["high"] = points["mean"] - points["std"], points["mean"] + points["std"]
    if interval:
        points[["low", "high"]] = pd.DataFrame([interval(its) for _, its in values], points.index)
    points[["low", "high"]] = points[["low", "high"]].clip(*bounds)
    by_line = dict(iter(points.reset_index().groupby([col, hue])))
    for place, (value, colour) in enumerate(colours.items()):
        for name, axes in grid.axes.items():
            if (name, value) not in by_line:
                continue
            line = by_line[name, value]
            look = {"color": colour, "marker": MARKERS[place % len(MARKERS) * styled], "markeredgecolor": "white"}
            (drawn,) = axes.plot(
                line[x], line["mean"], linestyle=DASHES[place % len(DASHES) * styled], zorder=3, **look
            )
            if interval:
                axes.vlines(line[x], line["low"], line["high"], color=colour)
            else:
                axes.fill_between(line[x], line["low"], line["high"], color=colour, alpha=0.2, linewidth=0.8)
            if hue != col:
                grid.legend.setdefault(label.format(value), drawn)
    known = sorted(set(data[x]))
    step = math.ceil(3 * len(known) / grid.letters)
    for axes in grid.axes.values():
        if log and known[0] > 0:
            axes.set_xscale("log")
            plain(axes.xaxis)
        if len(known) <= FEW:
            ticks = known[::step]
            axes.set_xticks(ticks, [f"{value:,.10g}" for value in ticks], rotation=30 if known[-1] >= 1000 else 0)
            axes.minorticks_off()
    return grid


def intervals_of(comparisons: Iterable[Comparison]) -> Callable[[Any], tuple[float, float]]:
    """Return the 95 % intervals of comparisons by their values; Student's for other values."""
    from vitinit.analysis import stats

    known = {tuple(comparison.by_seed): (comparison.low, comparison.high) for comparison in comparisons}
    return lambda values: known.get(tuple(values)) or stats.student(values).interval


def set_defaults(width: float | None = None, font: float | None = None) -> None:
    """Set matplotlib up for all figures, of a width in inches and a font size in points."""
    import matplotlib as mpl

    warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as a box
    mpl.rc_file(STYLE, use_default_template=False)
    mpl.rcParams["figure.figsize"] = [width or WIDTH, mpl.rcParams["figure.figsize"][1]]
    mpl.rcParams["font.size"] = font or mpl.rcParams["font.size"]


def present(order: Iterable[str], values: Iterable[str]) -> list[str]:
    """Return the labels that occur, in their order."""
    known = set(values)
    return [label for label in order if label in known]


def finish(grid: Panels, title: str, note: str, titles: Mapping[Any, str] | None = None, bar: str = "") -> Panels:
    """Write titles of panels and figure, put the legend below, and make room for both.

    Args:
        grid: The panels.
        title: Of the figure.
        note: In the line below it.
        titles: Of panels, by their name; others have their name.
        bar: What the colours of images mean, where panels are images.
    """
    from matplotlib import rcParams

    for name, axes in grid.axes.items():
        size = "medium" if grid.across < 6 else "small"
        axes.set_title(textwrap.fill((titles or {}).get(name, str(name)), grid.letters), size=size)
    width, page = rcParams["figure.figsize"]
    head = "\n".join(textwrap.fill(text, letters(width)) for text in (title, note))
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
    return grid


def show(grid: Panels, maps: Mapping[Any, NDArray[Any]], **scale: Any) -> Panels:
    """Draw a matrix in colours in each panel, on one scale as of `imshow`."""
    for name, axes in grid.axes.items():
        axes.imshow(maps[name], **scale)
        axes.xaxis.set_visible(False)
        axes.yaxis.set_visible(False)
        axes.spines[:].set_visible(False)
    return grid


def plain(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as plain numbers: text is not read as mathematics here."""
    from matplotlib.ticker import NullFormatter

    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def score_name(runs: pd.DataFrame) -> str:
    """Return the name of `score` of these runs: of test images, of validation images, or of either."""
    names, splits = {"test": "test ", "val": "validation "}, set(runs["split"])
    split = names[splits.pop()] if len(splits) == 1 else ""
    return split + " or ".join(sorted(set(runs["metric"]), reverse=True))


def with_seeds(data: pd.DataFrame, *by: str) -> dict[str, str]:
    """Return titles of panels by column: its label, and the number of seeds behind each point, as `n=3 to 5`."""
    counts = data.groupby(["column", *by])["seed"].nunique().groupby("column").agg(["min", "max"])
    return {
        str(column): f"{column}: n={low}" + (f" to {high}" if high > low else "")
        for column, low, high in counts.itertuples()
    }


def file_part(*labels: str) -> str:
    """Return labels as a part of a file's name."""
    return "-".join(re.sub(r"[^\w.-]+", "_", label).strip("_")[:80] for label in labels)


def digest(data: pd.DataFrame) -> str:
    """Return a digest of what a figure shows, to six digits, off ties: processors differ beyond."""
    off_ties = data.apply(lambda column: column * (1 + 1e-9) if column.dtype == float else column)
    return sha256(off_ties.to_csv(index=False, float_format="%.6g").encode()).hexdigest()


def save(grid: Panels, path: Path) -> None:
    """Write a figure as PDF and PNG, and its data as CSV, without dates: the same records give the same bytes.

    Raises:
        VitinitError: a file cannot be written.
    """
    save_png(grid, path)
    command.write(path.with_name(f"{path.name}.pdf"), saved(grid, "pdf", CreationDate=None))
    command.write(path.with_name(f"{path.name}.csv"), csv_text(grid.data, float_format="%.10g"))


def save_png(grid: Panels, path: Path) -> None:
    """Write a figure as PNG that holds the digest of its data."""
    picture = saved(grid, "png", Software=None, Description=digest(grid.data))
    command.write(path.with_name(f"{path.name}.png"), picture)


def shows(path: Path, grid: Panels) -> bool:
    """Return True if the PNG at a path without its ending was drawn from the data of this figure."""
    from PIL import Image

    path = path.with_name(f"{path.name}.png")
    return path.is_file() and Image.open(path).info.get("Description") == digest(grid.data)


def saved(grid: Panels, ending: str, **metadata: str | None) -> bytes:
    """Return the content of a figure's file. It is laid out once, for all of them."""
    import matplotlib as mpl

    buffer, tight = io.BytesIO(), "tight" if grid.images else None
    svg: Any = {"svg.fonttype": "none", "svg.hashsalt": "vitinit", "savefig.transparent": ending == "svg"}
    with mpl.rc_context(svg, STYLE):
        if grid.figure.get_layout_engine():
            grid.figure.draw_without_rendering()
            grid.figure.set_layout_engine(None)
        grid.figure.savefig(buffer, format=ending, metadata=metadata, dpi=DPI[ending], bbox_inches=tight)
    return buffer.getvalue()
