"""Golden of training: tiny runs by the command line of some code, and all numbers that they leave, times aside.

The code may be of another commit: only the command line, records and kept files are used, here and in `made.py`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image

GRIDS = Path(__file__).parent / "grids"
FIELDS = (
    *("run_id", "row", "spec", "parameters", "dataset", "init"),
    *("history", "probes", "masked", "correct", "weights", "ema_weights"),
)
"""Fields of a record that are compared; the others hold times and the machine."""
TIMES = ("seconds", "images_per_s", "cached")
RETIRED = ("sam", "order", "erasing_noise")
"""Fields of a recipe that are about to go; the run_id holds their values."""
IMAGE_SIZE = 16


@dataclass(frozen=True)
class Execution:
    """A way to carry some rows of a grid out, which may change bits and never the run_id."""

    name: str
    grid: str
    rows: str = "*"
    options: tuple[str, ...] = ("--executor", "local")
    processes: int = 1

    def cells(self, only: str) -> list[str]:
        """Names of the rows that are carried out in this way, of those that `only` chooses."""
        rows = yaml.safe_load((GRIDS / f"{self.grid}.yaml").read_text())["rows"]
        return [row for row in rows if fnmatch(row, self.rows) and fnmatch(f"{self.name}/{row}", only)]


EXECUTIONS = (
    Execution("alone", "golden-digits"),
    Execution("alone", "golden-timm"),
    Execution("alone", "golden-shapes"),
    Execution("alone", "golden-folder"),
    Execution("micro-batch", "golden-digits", "rand-augment", ("--executor", "local", "--micro-batch", "6")),
    Execution("two-processes", "golden-digits", "rand-augment", ("--executor", "inline"), processes=2),
    Execution("ffcv", "golden-folder", "folder", ("--executor", "inline", "--loader", "ffcv")),
)


def taken(code: Path, only: str = "*") -> dict[str, Any]:
    """Carry the runs out with the code in a folder; return what they leave, by execution, row and seed.

    Args:
        code: root of a checkout.
        only: glob of names, as `alone/fp32`.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        draw_images(place / "images")
        for each in EXECUTIONS:
            if not (rows := each.cells(only)):
                continue
            if each.name == "ffcv" and importlib.util.find_spec("ffcv") is None:
                print(f"{each.name}: skipped, FFCV is not installed", file=sys.stderr)
                continue
            if each.name == "ffcv":
                prepare(code, place)
            for row in [f"row={rows[0]}"] if len(rows) == 1 else [None]:
                run(code, place, each, row)
            for record in map(Path, sorted((place / each.name / each.grid).glob("*.json"))):
                content = json.loads(record.read_text())
                if content.get("row") in rows:
                    name = f"{each.name}/{content['row']}/{content['spec']['seed']}"
                    found[name] = {**numbers(content), "files": files(record)}
    return found


def run(code: Path, place: Path, how: Execution, only: str | None) -> None:
    """`vitinit run`, to its end."""
    options = ["--device", "cpu", "--data-dir", "data", "--results", how.name]
    options += ["--keep-weights", "--keep-maps", *how.options, *(["--only", only] if only else [])]
    grid = shutil.copy(GRIDS / f"{how.grid}.yaml", place)  # beside the images of a relative folder
    vitinit(code, place, "run", grid, *options, processes=how.processes)


def prepare(code: Path, place: Path) -> None:
    """Write the images of the folder for FFCV."""
    size = ("--image-size", str(IMAGE_SIZE), "--data-dir", "data")
    vitinit(code, place, "data", "prepare", "folder:images", *size)


def vitinit(code: Path, place: Path, *arguments: str, processes: int = 1) -> None:
    """The code's own command in one process, or in several, as torchrun would start them.

    Raises:
        RuntimeError: it fails; with all that it has printed.
    """
    words = [sys.executable, "-c", entry(code), *arguments]
    ranks = [{}] if processes == 1 else worlds(processes)
    started = [
        subprocess.Popen(
            words,
            cwd=place,
            env={**environment(code, place), **rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ranks
    ]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError("\n".join((" ".join(arguments), *said)))


def entry(code: Path) -> str:
    """Python that calls the command `vitinit` of some code."""
    (found,) = re.findall(r'^vitinit = "([\w.]+):(\w+)"$', (code / "pyproject.toml").read_text(), re.MULTILINE)
    return "from {0} import {1}; {1}()".format(*found)


def environment(code: Path, place: Path) -> dict[str, str]:
    """Variables with which Python imports vitinit from `code` and tests from here, and reads no cache of before."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("VITINIT")}
    here = Path(__file__).parents[2]
    return {**outer, "PYTHONPATH": f"{code}:{here}", "XDG_CACHE_HOME": str(place / "cache"), "COLUMNS": "200"}


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
    """The same without times, and without fields that are about to go."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key not in (*TIMES, *RETIRED)}
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
