"""Style of all figures: looks of rows, sizes of panels, intervals, titles, files."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
import warnings
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis import command
from vitinit.benchmark.records.export import csv_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from seaborn import FacetGrid

WIDTH = 6.5
"""Inches of all panels side by side."""
FIXED = {
    **{"Kaiming uniform": "#000000", "Trunc normal": "#7f7f7f", "Mimetic": "#009E73", "Imp.-3": "#D55E00"},
    **{"Imp.-5": "#CC79A7", "ConViT": "#0072B2"},
}
"""Colours of the papers' rows, of Okabe and Ito's palette, told apart with every common colour blindness."""
OTHERS = ("#E69F00", "#56B4E9", "#882255", "#999933", "#332288", "#44AA99", "#A6761D", "#AA4499", "#117733", "#CC6677")
"""Colours of other rows: that which follows from the label, or the next one that is free."""
DASHES: tuple[Any, ...] = ("", (4, 1.5), (1, 1), (3, 1, 1, 1), (6, 1.5), (5, 1, 1, 1, 1, 1))
FEW = 10
"""An axis with so many points or fewer has ticks at points only, at each where there is room."""
SD = "mean over seeds, band: standard deviation"


def palette(labels: Iterable[str]) -> dict[str, str]:
    """Return a colour by row label, the same in every study as long as none is taken."""
    found: dict[str, str] = {}
    for label in labels:
        first = int(sha256(label.encode()).hexdigest()[:8], 16) % len(OTHERS)
        tried = OTHERS[first:] + OTHERS[:first]
        free = (colour for colour in tried if colour not in found.values())
        found[label] = FIXED.get(label) or next(free, tried[0])
    return found


def lines(
    data: pd.DataFrame,
    x: str,
    y: str,
    col: str,
    names: tuple[str, str],
    height: float,
    across: int = 3,
    rows: Iterable[str] = (),
    log: bool = False,
    sharey: bool = True,
    **more: Any,
) -> FacetGrid:
    """Draw means with their spread over x, a panel per value of `col`, a line per row or per value of another `hue`.

    Args:
        data: What is drawn, in the order of the panels.
        x: Column of the horizontal axis.
        y: Column of the vertical axis.
        col: Column of the panels.
        names: Of both axes.
        height: Of a panel, in inches.
        across: Most panels side by side.
        rows: Labels in their order, where lines are rows: each has its own colour and dash.
        log: True for a logarithmic x.
        sharey: True if all panels have one vertical axis.
        more: Arguments of `seaborn.relplot`.
    """
    import seaborn as sns

    if rows:
        labels = present(rows, data["row"])
        more |= {"hue": "row", "hue_order": labels, "palette": palette(labels), "style": "row", "style_order": labels}
        more["dashes"] = dict(zip(labels, itertools.cycle(DASHES), strict=False))
    grid = sns.relplot(
        data.reset_index(drop=True),
        kind="line",
        x=x,
        y=y,
        col=col,
        marker="o",
        markersize=3.5,
        facet_kws={"sharey": sharey, "legend_out": False},
        **panels(data[col].nunique(), height, across),
        **{"errorbar": "sd", **more},
    )
    known = sorted(set(data[x]))
    for axes in grid.axes.flat:
        if log and known[0] > 0:
            axes.set_xscale("log")
            plain(axes.xaxis)
        if len(known) <= FEW:
            at = known[:: -(-len(known) // max(1, int(axes.bbox.width / 16)))]
            axes.set_xticks(at, [f"{value:,.10g}" for value in at], rotation=30 if known[-1] >= 1000 else 0)
            axes.minorticks_off()
    return grid.set_axis_labels(*names)


def panels(number: int, height: float, across: int = 3) -> dict[str, Any]:
    """Return the layout of panels for seaborn: all that are side by side are as wide as a page."""
    across = 2 if number == 4 and across == 3 else min(across, number)
    return {"col_wrap": across, "height": height, "aspect": WIDTH / across / height}


def t_interval(values: pd.Series[float] | NDArray[Any]) -> tuple[float, float]:
    """Return Student's 95 % interval of a mean, for `errorbar`; NaN under three values."""
    import numpy as np

    from vitinit.analysis import stats

    found = stats.t_interval(np.asarray(values, float))
    return (found.low, found.high) if found else (float("nan"), float("nan"))


def set_defaults() -> None:
    """Set matplotlib and seaborn up for all figures."""
    import seaborn as sns

    warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as a box
    warnings.filterwarnings("ignore", "Tight layout not applied")  # seaborn's; `finish` lays out anew
    sns.set_theme(
        context="paper",
        style="ticks",
        rc={
            "savefig.bbox": "tight",
            "pdf.fonttype": 42,  # TrueType in PDF: text stays text
            "text.parse_math": False,  # a label is what it is
            **{"font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 8, "figure.titlesize": 8},
            **{"xtick.labelsize": 7, "ytick.labelsize": 7, "lines.linewidth": 1.3},
            **{"axes.grid": True, "grid.alpha": 0.4, "grid.linewidth": 0.5},
            "figure.max_open_warning": 0,  # a drawing may be a figure per row; all are closed once they are saved
        },
    )


def present(order: Iterable[str], values: Iterable[str]) -> list[str]:
    """Return the labels that occur, in their order."""
    known = set(values)
    return [label for label in order if label in known]


def finish(grid: FacetGrid, title: str, note: str, titles: Mapping[Any, str] | None = None, bar: str = "") -> FacetGrid:
    """Write titles of panels and figure, put the legend below, and make room for both.

    Args:
        grid: With a column, or rows and columns.
        title: Of the figure.
        note: In the line below it.
        titles: Of panels, by the value of their column; others keep their own.
        bar: What the colours of images mean, where panels are images.
    """
    import seaborn as sns

    grid.set_titles("{col_name}")
    for name, axes in grid.axes_dict.items():
        axes.set_title(textwrap.fill((titles or {}).get(name, axes.get_title()), max(12, int(axes.bbox.width / 6))))
    head = "\n".join(textwrap.fill(text, int(WIDTH * 17)) for text in (title, note))
    grid.figure.suptitle(head)
    lines = head.count("\n") + 2
    if grid.legend:
        labels = [text.get_text() for text in grid.legend.get_texts()]
        columns = max(1, int(WIDTH * 14 / (max(map(len, labels)) + 7)))
        sns.move_legend(grid, "outside lower center", ncols=columns, frameon=False, title=None)
        lines += -(-len(labels) // columns) + 1
    grid.figure.set_layout_engine("compressed" if bar else "constrained")
    grid.figure.set_figheight(grid.figure.get_figheight() + 0.14 * lines)
    if bar:
        images = [image for axes in grid.axes.flat for image in axes.get_images()]
        scale = grid.figure.colorbar(images[0], ax=list(grid.axes.flat), label=bar, shrink=0.6, aspect=30)
        if scale.ax.get_yscale() == "log":
            plain(scale.ax.yaxis)
    return grid


def images(data: pd.DataFrame, maps: Mapping[Any, NDArray[Any]], scale: dict[str, Any], **facets: Any) -> FacetGrid:
    """Draw a matrix in colours in each panel.

    Args:
        data: What is drawn, with the columns of the panels.
        maps: The matrices, by the value of their column, or of row and column.
        scale: Of the colours, as in `imshow`.
        facets: Arguments of `seaborn.FacetGrid`.
    """
    import seaborn as sns

    grid = sns.FacetGrid(data, sharex=False, sharey=False, **facets)
    for where, axes in grid.axes_dict.items():
        axes.imshow(maps[where], cmap="viridis", **scale)
        axes.set(xticks=[], yticks=[], xlabel="", ylabel="")
        axes.spines[:].set_visible(False)
        axes.grid(visible=False)
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


def save(grid: FacetGrid, path: Path) -> None:
    """Write a figure as PDF and PNG, and its data as CSV, without dates: the same records give the same bytes.

    Raises:
        VitinitError: a file cannot be written.
    """
    save_png(grid, path)
    pdf = io.BytesIO()
    grid.figure.savefig(pdf, format="pdf", metadata={"CreationDate": None}, dpi=300)
    command.write(path.with_name(f"{path.name}.pdf"), pdf.getvalue())
    command.write(path.with_name(f"{path.name}.csv"), csv_text(grid.data, float_format="%.10g"))


def save_png(grid: FacetGrid, path: Path) -> None:
    """Write a figure as PNG that holds the digest of its data."""
    png, facts = io.BytesIO(), {"Software": None, "Description": digest(grid.data)}
    grid.figure.savefig(png, format="png", metadata=facts, dpi=160)
    command.write(path.with_name(f"{path.name}.png"), png.getvalue())


def shows(path: Path, grid: FacetGrid) -> bool:
    """Return True if the PNG at a path without its ending was drawn from the data of this figure."""
    from PIL import Image

    path = path.with_name(f"{path.name}.png")
    return path.is_file() and Image.open(path).info.get("Description") == digest(grid.data)


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG with its text as text. The same records give the same bytes."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vitinit"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    return buffer.getvalue()
