"""What figures draw, and what every figure must be."""

from __future__ import annotations

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitinit.analysis.plotting.style import WIDTH


def drawn(axes: Axes) -> list[tuple[list[float], list[float], str, str]]:
    """What data lines show, as lists of x and y with their colour and marker."""
    return [
        (list(line.get_xdata()), list(line.get_ydata()), line.get_color(), line.get_marker()) for line in axes.lines
    ]


def assert_readable(figure: Figure) -> None:
    """As wide as a page's text, nothing cut off, no text under 7 points."""
    assert abs(figure.get_figwidth() - WIDTH) < 1e-6
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(mpl.text.Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) >= 7
    inches = figure.get_tightbbox()
    assert min(inches.x0, inches.y0) >= -0.01, "nothing is cut off, to a pixel"
    assert inches.x1 <= WIDTH, "nothing is cut off"
