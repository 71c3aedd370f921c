"""Attention maps of the page: every layer and epoch that a run has kept, behind two sliders."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitinit.analysis.figures.attention import SPAN, what
from vitinit.analysis.figures.kept import Kept, kept
from vitinit.analysis.frame import Study
from vitinit.analysis.unread import with_mark

if TYPE_CHECKING:
    import numpy as np

LEVELS = 16
"""Steps of the colour scale: half an octave each, which keeps a map under 2 kB."""
MOST_PIXELS = 96
"""Side of a map; one of more tokens is averaged to as many."""


@dataclass(frozen=True)
class Maps:
    """Maps of the first head on one dataset, for all rows that have kept the same epochs of as many layers."""

    dataset: str
    what: str
    """Dataset, seed, head and images."""
    epochs: tuple[int, ...]
    layers: int
    sheets: dict[str, tuple[str, str]]
    """By row: its label, and an image in an address with a column a layer and a line an epoch."""

    @property
    def colours(self) -> list[str]:
        """The colour scale, from the lowest to the highest."""
        from matplotlib.colors import to_hex

        return [to_hex(colour) for colour in _colours()]

    @property
    def span(self) -> int:
        """The scale goes from this part of uniform attention to so many times it."""
        return SPAN


def attention_maps(study: Study) -> list[Maps]:
    """Return the maps of a study; none where no run has kept any.

    Raises:
        VitinitError: a file of maps is damaged.
    """
    found = []
    for column, runs in kept(study).items():
        for kind in dict.fromkeys(map(_kind, runs.values())):
            alike = {row: run for row, run in runs.items() if _kind(run) == kind}
            sheets = {
                row: (with_mark(row, run.record), _sheet(run.maps.maps_ELHNN[:, :, 0])) for row, run in alike.items()
            }
            found.append(Maps(column, " ".join(what(study, alike).split()), *kind, sheets))
    return found


def _colours() -> np.ndarray:
    import matplotlib as mpl
    import numpy as np

    return np.asarray(mpl.colormaps["viridis"](np.linspace(0, 1, LEVELS)))


def _kind(run: Kept) -> tuple[tuple[int, ...], int]:
    return run.maps.epochs, run.maps.maps_ELHNN.shape[1]


def _sheet(maps_ELNN: np.ndarray) -> str:
    """All maps in one image, in the colours of the figures."""
    import numpy as np
    from PIL import Image

    epochs, layers, tokens, _ = maps_ELNN.shape
    side = min(tokens, MOST_PIXELS)
    shares = maps_ELNN.astype("float32").reshape(-1, tokens, tokens) * tokens
    if side < tokens:
        small = (Image.fromarray(each).resize((side, side), Image.Resampling.BOX) for each in shares)
        shares = np.stack([np.asarray(image) for image in small])
    octaves = np.log2(shares.clip(1 / SPAN, SPAN)) / np.log2(SPAN)
    level = ((octaves + 1) / 2 * (LEVELS - 1)).round().astype(int)
    colours = (255 * _colours()[:, :3]).round().astype("uint8")
    sheet = level.reshape(epochs, layers, side, side).transpose(0, 2, 1, 3).reshape(epochs * side, layers * side)
    buffer = io.BytesIO()
    Image.fromarray(colours[sheet]).save(buffer, "webp", lossless=True, quality=50, method=3)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
