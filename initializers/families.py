"""Families of models: where they have what bases and methods set. `families.json` describes them, by text alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vitinit.initializers.adapter import Adapter
from vitinit.initializers.errors import VitinitError


def hugging_face_grid(model: Any) -> tuple[int, int]:
    """Rows and columns of the patches.

    Raises:
        VitinitError: DINOv2 of images that are no squares, whose positions are interpolated as from a square.
    """
    embedding = model.embeddings.patch_embeddings
    (height, width), (down, across) = embedding.image_size, embedding.patch_size
    if height != width and "Dinov2" in type(model).__name__:
        raise VitinitError(f"{type(model).__name__} of {height} x {width} interpolates its positions as from a square")
    return height // down, width // across


CALLABLES: dict[str, Any] = {
    "timm": lambda model: model.patch_embed.grid_size,
    "stem": lambda model: model.stem.grid_size,
    "image_size": lambda model: (model.image_size // model.patch_size,) * 2,
    "hugging face": hugging_face_grid,
    "rope": lambda model: model.rope is not None,
}
"""Values of `grid` and `rotary` in the table."""
ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("families.json").read_text())
FAMILIES = tuple(
    Adapter(**row | {name: CALLABLES[row[name]] for name in ("grid", "rotary") if name in row}) for row in ROWS
)
