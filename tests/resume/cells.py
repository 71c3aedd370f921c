"""Tiny runs of the goldens' grids, ways to carry them out, and all numbers that they leave, times aside."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image

GRIDS = Path(__file__).parents[1] / "golden/grids"
FIELDS = (
    *("run_id", "row", "spec", "parameters", "dataset", "init"),
    *("history", "probes", "masked", "correct", "weights", "ema_weights"),
)
"""Fields of a record that are compared; the others hold times and the machine."""
TIMES = ("seconds", "images_per_s", "cached")
IMAGE_SIZE = 16


@dataclass(frozen=True)
class Execution:
    """A way to carry some rows of a grid out, which may change bits and never the run_id."""

    name: str
    grid: str
    rows: str = "*"
    options: tuple[str, ...] = ("--executor", "local")
    processes: int = 1

    def cells(self) -> list[str]:
        """Names of the rows that are carried out in this way."""
        rows = yaml.safe_load((GRIDS / f"{self.grid}.yaml").read_text())["rows"]
        return [row for row in rows if fnmatch(row, self.rows)]


EXECUTIONS = (
    Execution("alone", "golden-digits"),
    Execution("alone", "golden-timm"),
    Execution("alone", "golden-shapes"),
    Execution("alone", "golden-folder"),
    Execution("micro-batch", "golden-digits", "rand-augment", ("--executor", "local", "--micro-batch", "6")),
    Execution("two-processes", "golden-digits", "rand-augment", ("--executor", "inline"), processes=2),
)


def worlds(processes: int) -> list[dict[str, str]]:
    """The variables that torchrun sets, for each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    sizes = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    return [{**address, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a record that is compared."""
    return without_times({name: record[name] for name in FIELDS if name in record})


def without_times(value: Any) -> Any:
    """The same without times."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in TIMES}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def files(record: Path) -> dict[str, str]:
    """sha256 over the tensors in each file that a run has kept: weights, and attention maps."""
    kept = sorted(path for path in record.parent.rglob(f"*{record.stem}*") if path.suffix in (".pt", ".npz"))
    return {str(path.relative_to(record.parent)).replace(record.stem, "RUN_ID"): digest(path) for path in kept}


def digest(path: Path) -> str:
    """sha256 over names, types, shapes and bytes of the tensors in a file, whatever its format."""
    if path.suffix == ".npz":
        with np.load(path) as loaded:
            arrays = dict(loaded)
    else:
        arrays = {name: tensor.numpy() for name, tensor in torch.load(path, weights_only=True).items()}
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def draw_images(root: Path) -> None:
    """Two classes of noise in several sizes: PNG, JPEG, some grey."""
    random = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (root / name).mkdir(parents=True)
        for number in range(60):
            height, width = random.integers(IMAGE_SIZE, 3 * IMAGE_SIZE, 2)
            pixels = random.integers(60 * label, 60 * label + 120, (height, width, 3), dtype=np.uint8)
            image = Image.fromarray(pixels).convert("L" if number % 10 == 0 else "RGB")
            image.save(root / name / f"{number:02}.{'jpg' if number % 3 else 'png'}")
