"""Style of all figures: looks of rows, sizes of panels, intervals, titles, files."""

from __future__ import annotations

import io
import itertools
import re
import textwrap
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import Study
from vitinit.analysis.text import capitalised, one_line
from vitinit.initializers.errors import os_errors

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
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
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
FEW = 10
"""A line through so many points or fewer has a marker at each, and its axis a tick."""
SD = "mean over seeds, band: standard deviation"
INTERVAL = "mean over seeds with 95 % interval (t)"


def palette(labels: Iterable[str]) -> dict[str, str]:
    """Return a colour by row label, the same in every study as long as none is taken."""
    found: dict[str, str] = {}
    for label in labels:
        first = int(sha256(label.encode()).hexdigest()[:8], 16)
        tried = [OTHERS[(first + step) % len(OTHERS)] for step in range(len(OTHERS))]
        free = (colour for colour in tried if colour not in found.values())
        found[label] = FIXED.get(label) or next(free, tried[0])
    return found


def looks(labels: Sequence[str], points: int = 1) -> dict[str, Any]:
    """Return hue, dash and marker of lines for `seaborn.relplot`, by label, for lines through so many points."""
    return {
        "hue_order": labels,
        "palette": palette(labels),
        "style_order": labels,
        "dashes": dict(zip(labels, itertools.cycle(DASHES), strict=False)),
        "markers": dict(zip(labels, itertools.cycle(MARKERS), strict=False)) if points <= FEW else False,
        "markersize": 4,
    }


def size(panels: int, height: float = 2.1, across: int = 3) -> dict[str, Any]:
    """Return the layout of panels for seaborn: all that are side by side are as wide as a page."""
    across = 2 if panels == 4 and across == 3 else min(across, panels)
    return {"col_wrap": across, "height": height, "aspect": WIDTH / across / height}


def t_interval(values: pd.Series[float] | NDArray[Any]) -> tuple[float, float]:
    """Return Student's 95 % interval of a mean, for `errorbar`; NaN under three values."""
    import numpy as np
    from scipy.special import stdtrit

    x = np.asarray(values, float)
    if len(x) < 3:
        return float("nan"), float("nan")
    half = stdtrit(len(x) - 1, 0.975) * x.std(ddof=1) / len(x) ** 0.5
    return float(x.mean() - half), float(x.mean() + half)


def set_defaults() -> None:
    """Set matplotlib and seaborn up for all figures."""
    import matplotlib as mpl
    import seaborn as sns

    mpl.use("agg")
    warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as a box
    warnings.filterwarnings("ignore", "Tight layout not applied")  # `finish` applies it again
    sns.set_theme(
        context="paper",
        style="ticks",
        rc={
            "pdf.fonttype": 42,  # TrueType in PDF: text stays text
            "text.parse_math": False,  # a label is what it is
            **{"font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 8, "figure.titlesize": 9},
            **{"xtick.labelsize": 7, "ytick.labelsize": 7, "lines.linewidth": 1.3},
            **{"axes.grid": True, "grid.alpha": 0.4, "grid.linewidth": 0.5},
            "figure.max_open_warning": 0,  # a drawing may be a figure per row; all are closed once they are saved
        },
    )


def present(order: Iterable[str], values: Iterable[str]) -> list[str]:
    """Return the labels that occur, in their order."""
    known = set(values)
    return [label for label in order if label in known]


def finish(grid: FacetGrid, title: str, note: str = "", titles: Mapping[Any, str] | None = None) -> FacetGrid:
    """Write titles of panels and figure, and put the legend below.

    Args:
        grid: With a column, or rows and columns.
        title: Of the figure.
        note: Below it, smaller.
        titles: Of panels, by the value of their column; others keep their own.
    """
    import seaborn as sns

    grid.set_titles("{col_name}")
    spec = grid.axes.flat[0].get_subplotspec()
    letters = int(WIDTH * 13 / (spec.get_gridspec().ncols if spec else 1))
    for name, axes in grid.axes_dict.items():
        axes.set_title(textwrap.fill((titles or {}).get(name, axes.get_title()), max(letters, 12)))
    grid.tight_layout()
    if grid.legend:
        longest = max(len(text.get_text()) for text in grid.legend.get_texts())
        columns = max(1, int(WIDTH * 14 / (longest + 7)))
        sns.move_legend(grid, "upper center", bbox_to_anchor=(0.5, 0.01), ncols=columns, frameon=False, title=None)
    high = grid.figure.get_figheight()
    note = textwrap.fill(note, int(WIDTH * 17))
    lines = len(note.splitlines())
    if note:
        grid.figure.text(0.5, 1 + 0.06 / high, note, ha="center", va="bottom", fontsize=7, color="#444444")
    grid.figure.suptitle(textwrap.fill(title, int(WIDTH * 14)), y=1 + (0.14 * lines + 0.1) / high, va="bottom")
    return grid


def ticks(grid: FacetGrid, values: Iterable[float], log: bool = False, only: Axes | None = None) -> None:
    """Put ticks of the x-axes, or of one panel only, where points are, if they are few."""
    known = sorted(set(values))
    for axes in grid.axes.flat if only is None else [only]:
        if log and known[0] > 0:
            axes.set_xscale("log")
        if len(known) <= FEW:
            axes.set_xticks(known, [f"{value:,.10g}" for value in known])
            axes.minorticks_off()


def heat_bar(grid: FacetGrid, label: str) -> None:
    """Add the colour scale of images to the right of all panels."""
    image = next(image for axes in grid.axes.flat for image in axes.get_images())
    bar = grid.figure.add_axes((1.01, 0.3, 0.012, 0.4))
    grid.figure.colorbar(image, cax=bar, label=label)
    if bar.get_yscale() == "log":
        plain(bar.yaxis)


def plain(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def score_name(runs: pd.DataFrame) -> str:
    """Return the name of `score` of these runs: of test images, of validation images, or of either."""
    names, splits = {"test": "test ", "val": "validation "}, set(runs["split"])
    split = names[splits.pop()] if len(splits) == 1 else ""
    return split + " or ".join(sorted(set(runs["metric"]), reverse=True))


def title_of_scores(study: Study) -> str:
    """Return the title of a figure of them."""
    known = {"top-1": "Accuracy", "top-1 or mean IoU": "Accuracy or mean IoU"}
    return known.get(study.measured, capitalised(study.measured))


def seeds(data: pd.DataFrame, *by: str) -> str:
    """Return the number of seeds behind each point: `n=3`, or `n=3 to 5`."""
    return f"n={span(data.groupby(list(by))['seed'].nunique())}"


def span(values: Iterable[int]) -> str:
    """Return `3`, or `3 to 5`."""
    known = set(values)
    return " to ".join(map(str, sorted({min(known), max(known)})))


def file_part(*labels: str) -> str:
    """Return labels as a part of a file's name; one of more than 80 letters ends in a digest of the whole."""
    parts = [re.sub(r"[^\w.-]+", "_", label).strip("_") for label in labels]
    return "-".join(
        part if len(part) <= 80 else f"{part[:71]}-{sha256(part.encode()).hexdigest()[:8]}" for part in parts
    )


def not_in(taken: Container[str], name: str) -> str:
    """Return a name that no other file has: labels may differ in nothing but what a name cannot hold."""
    others = (f"{name}-{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], others) if each not in taken)


def short(label: str) -> str:
    """Return a label of 40 characters at most."""
    return one_line(label, 40)


def save(grid: FacetGrid, path: Path) -> None:
    """Write PDF, PNG and, but of maps, CSV, without dates: the same records give the same bytes.

    Raises:
        VitinitError: a file cannot be written.
    """
    with os_errors(f"cannot write {path}"):
        grid.figure.savefig(f"{path}.pdf", metadata={"CreationDate": None}, dpi=300, bbox_inches="tight")
        grid.figure.savefig(f"{path}.png", dpi=160, metadata={"Software": None}, bbox_inches="tight")
        if "map" not in grid.data:
            grid.data.to_csv(f"{path}.csv", index=False, float_format="%.10g")


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG with its text as text. The same records give the same bytes."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vitinit"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True, bbox_inches="tight")
    return buffer.getvalue()
