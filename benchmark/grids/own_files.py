"""Files of one's own in a grid: relative to it, each by its content. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitinit.benchmark.grids.schema import GridFile, Row
from vitinit.initializers import own_files

MODEL = "python"
"""Field of a model, or of a dataset, that names a class."""


def with_own_files(file: GridFile, folder: Path) -> GridFile:
    """Return a grid in which every name of a file has its content.

    Args:
        file: the grid.
        folder: that it lies in.

    Raises:
        VitinitError: a file is not there, or has nothing of this name.
    """
    rows = {label: _row(row, folder) for label, row in file.rows.items()}
    blocks = [
        block.model_copy(
            update={
                "model": _fields(block.model, MODEL, folder),
                "datasets": [_fields(dataset, "name", folder) for dataset in block.datasets],
            }
        )
        for block in file.blocks
    ]
    return file.model_copy(update={"rows": rows, "blocks": blocks})


def _row(row: Row, folder: Path) -> Row:
    method = row.method and _initializer(row.method, folder)
    model = _fields(row.model, MODEL, folder)
    return row.model_copy(update={"base": _initializer(row.base, folder), "method": method, "model": model})


def _initializer(named: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """With that inside it (`of`), where it wraps another."""
    fields = _fields(named, "name", folder)
    of = fields.get("of")
    if isinstance(of, str):
        fields["of"] = own_files.pinned(of, folder)
    elif isinstance(of, Mapping):
        fields["of"] = _initializer(of, folder)
    return fields


def _fields(fields: Mapping[str, Any], key: str, folder: Path) -> dict[str, Any]:
    value = fields.get(key)
    return {**fields, key: own_files.pinned(value, folder)} if isinstance(value, str) else dict(fields)
