"""What all figures share: sizes, looks of the methods, labels, files."""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.figures import fonts
from analysis.frame import ROWS, Study
from analysis.series import Line
from analysis.text import one_line
from initializers.errors import VitinitError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

WIDTH = 5.5
"""Inches: the text of a paper of one column. No text is smaller than 7 pt, at this width or a larger one."""
ACROSS = 3
"""At most this many panels beside one another."""
LETTERS = 84
"""Of panels' titles in a line of `WIDTH`."""

TOP1 = "test top-1 (%)"
BAND = "mean over seeds, band ± one standard deviation"

# Okabe and Ito's palette, told apart with every common colour blindness; with four dashes, 28 distinct lines, and with
# eight markers 56 distinct points.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")


@dataclass(frozen=True)
class Look:
    """How a row is drawn, in every figure."""

    color: str
    linestyle: str
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """For lines without markers."""
        return {"color": self.color, "linestyle": self.linestyle}

    @property
    def point(self) -> dict[str, Any]:
        """For markers without lines."""
        return {"color": self.color, "marker": self.marker}


def looks(study: Study) -> dict[str, Look]:
    """By row label, in the order of the tables; a look goes by place, so that a missing row shifts no other."""
    places = dict.fromkeys([*ROWS, *study.order, *study.rows])
    looks = {
        name: Look(COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])
        for i, name in enumerate(places)
    }
    return {name: looks[name] for name in dict.fromkeys([*study.rows, *looks])}


def set_defaults() -> None:
    """Matplotlib's settings for all figures."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams.update(
        {
            "pdf.fonttype": 42,  # TrueType in PDF: text stays text
            "font.size": 8,
            "axes.titlesize": 8,
            "axes.labelsize": 8,
            "figure.titlesize": 8,
            "legend.fontsize": 8,
            "xtick.labelsize": 7,
            "ytick.labelsize": 7,
            "axes.linewidth": 0.6,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "lines.linewidth": 1.4,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "grid.alpha": 0.3,
            "grid.linewidth": 0.6,
            "figure.max_open_warning": 0,  # one drawing may be a figure a row; all are closed once they are saved
        }
    )


def panels(count: int, height: float, title: str, across: int = ACROSS, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels of `height` inches; `shared` as in `plt.subplots`."""
    import matplotlib.pyplot as plt

    across = min(across, count)
    down = -(-count // across)
    figure, grid = plt.subplots(
        down, across, figsize=(WIDTH, height * down + 0.6), squeeze=False, layout="constrained", **shared
    )
    figure.suptitle(title)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def panel_title(axes: Axes, text: str) -> None:
    """In as many lines as the panel's width needs."""
    spec = axes.get_subplotspec()
    # with a place of its own, matplotlib need not look for one that is above all ticks, each time that it draws
    axes.set_title(textwrap.fill(text, LETTERS // (spec.get_gridspec().ncols if spec else 1)), y=1.0)


def line_with_band(axes: Axes, numbers: Line, look: Look, marker: str | None = None) -> Line2D:
    """A mean and its band over x; returns what a legend shows."""
    # The standard deviation of one seed is NaN, which draws no band; a line through one point needs a marker.
    marker = marker or (look.marker if len(numbers.x) == 1 else None)
    (line,) = axes.plot(numbers.x, numbers.mean, marker=marker, markersize=3.5, **look.line)
    low, high = numbers.mean - numbers.std, numbers.mean + numbers.std
    axes.fill_between(numbers.x, low, high, color=look.color, alpha=0.2, linewidth=0)
    return line


def legend(figure: Figure, study: Study, handles: dict[str, Line2D]) -> None:
    """Below all panels, rows in their order; `handles` by row label."""
    rows = [row for row in looks(study) if row in handles]
    legend_below(figure, [handles[row] for row in rows], [safe(row) for row in rows], 3, 2.2, 1.2)


def legend_below(
    figure: Figure, handles: list[Line2D], labels: list[str], columns: int, length: float, spacing: float
) -> None:
    """A legend below all panels; length of the lines and space between the columns in units of the font size."""
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        handlelength=length,
        columnspacing=spacing,
        handletextpad=0.4,
    )


def counted(what: str, count: int) -> list[str]:
    """`layer 1`, `2`, `3` ... for a legend."""
    return [f"{what} 1", *map(str, range(2, count + 1))]


def safe(label: str) -> str:
    """A label that matplotlib does not take for mathematics, with `?` for what no font that is in use has."""
    known = fonts.glyphs()
    return "".join(char if ord(char) in known else "?" for char in one_line(label, 60)).replace("$", r"\$")


def file_part(labels: Iterable[str]) -> str:
    """Labels as a part of a file's name."""
    return "-".join(re.sub(r"[^\w.-]+", "_", label).strip("_") for label in labels)


def span(values: Iterable[int]) -> str:
    """`3`, or `3 to 5`."""
    known = set(values)
    return " to ".join(map(str, sorted({min(known), max(known)})))


def lay_out(figure: Figure) -> None:
    """Place what is in a figure, once: otherwise every file that it is written to begins with drawing it unseen."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)


def save(figure: Figure, path: Path) -> None:
    """Write `<path>.pdf` and `<path>.png`, without dates: the same records give the same bytes.

    Raises:
        VitinitError: a file cannot be written.
    """
    lay_out(figure)
    try:
        figure.savefig(f"{path}.pdf", metadata={"CreationDate": None}, dpi=400)
        figure.savefig(f"{path}.png", dpi=200, metadata={"Software": None})
    except OSError as error:
        raise VitinitError(f"cannot write {path}: {error.strerror or error}") from None


def data_url(figure: Figure) -> str:
    """The figure as SVG in the address of an image. The same records give the same bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(figure)  # texts are as wide as in the file
    lay_out(figure)
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "vitinit"}):
        figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"
