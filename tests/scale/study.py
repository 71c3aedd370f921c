"""A synthetic study of any size: a grid file, the data files it asks for (empty), and records of its runs.

python tests/scale/study.py FOLDER --seeds 500 --epochs 20 --failed 500 --to-do 500
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import yaml

from vitinit.benchmark.datasets.cifar import CIFAR10, CIFAR100
from vitinit.benchmark.datasets.svhn import SVHN_CROPPED
from vitinit.benchmark.grids.grid import load
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.epoch import EpochRow
from vitinit.benchmark.records.record import FailureRecord, RunRecord, to_bytes
from vitinit.benchmark.records.store import Store

NAME = "scale"
ROWS = {
    "Kaiming uniform": {"base": "kaiming_uniform"},
    "Trunc normal": {"base": "trunc_normal"},
    "Mimetic": {"base": "kaiming_uniform", "method": "mimetic"},
    "Imp.-3": {"base": "kaiming_uniform", "method": {"name": "impulse", "kernel_size": 3}},
    "Imp.-5": {"base": "kaiming_uniform", "method": {"name": "impulse", "kernel_size": 5}},
}
DATASETS = [{"name": "cifar10", "train_size": 5000}, "cifar10", "cifar100", "svhn"]
REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def make(folder: Path, seeds: int, epochs: int, failed: int = 0, to_do: int = 0) -> None:
    """Write everything into a folder: `scale.yaml`, `data/` and `results/local/scale/`.

    The grid has 20 runs a seed. Some of them, spread over all rows and datasets, failed or were never started; the
    others are done. The records hold everything that those of a real run hold, of invented accuracies.
    """
    block = {
        "datasets": DATASETS,
        "model": {"preset": "vit_micro", "image_size": 32, "patch_size": 4},
        "recipe": {"name": "small", "epochs": epochs},
        "seeds": list(range(seeds)),
    }
    grid_file, records = folder / f"{NAME}.yaml", folder / "results" / "local" / NAME
    grid_file.write_text(yaml.safe_dump({"title": "Synthetic", "rows": ROWS, "blocks": [block]}), encoding="utf-8")
    for path in (folder / "data" / name for dataset in (CIFAR10, CIFAR100, SVHN_CROPPED) for name in dataset.files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    records.mkdir(parents=True, exist_ok=True)
    real = {record.row: record for record in Store(REFERENCE).read("small").done.values()}
    cells = load(str(grid_file)).cells
    chance = random.Random(0)
    chance.shuffle(cells)
    for number, cell in enumerate(cells[to_do:]):
        outcome = _failure(cell) if number < failed else _record(cell, real[cell.row], chance)
        suffix = ".failed.json" if number < failed else ".json"
        # Not through the store: bringing each of 10,000 files to the disk takes minutes.
        (records / f"{cell.run_id}{suffix}").write_bytes(to_bytes(outcome))


def _record(cell: Cell, real: RunRecord, chance: random.Random) -> RunRecord:
    last = chance.uniform(30, 60)
    history = [
        EpochRow(
            epoch=epoch,
            lr=1e-3 / epoch,
            train_loss=2 / epoch + chance.random(),
            test_loss=2 / epoch + chance.random(),
            test_top1=round(last * (1 - 0.5 / epoch) + chance.random(), 2),
            seconds=10 + chance.random(),
        )
        for epoch in range(1, cell.spec.recipe.epochs + 1)
    ]
    images = cell.spec.dataset.train_size or 50_000
    return real.model_copy(
        update={
            "run_id": cell.run_id,
            "study": NAME,
            "row": cell.row,
            "spec": cell.spec,
            "dataset": real.dataset.model_copy(update={"train": images, "test": 10_000}),
            "history": history,
            "probes": [],
        }
    )


def _failure(cell: Cell) -> FailureRecord:
    return FailureRecord(
        run_id=cell.run_id,
        study=NAME,
        row=cell.row,
        spec=cell.spec,
        written="2025-01-01T00:00:00Z",
        error="RuntimeError",
        message="out of memory",
        traceback="Traceback (most recent call last): ...",
        execution={},
        environment={},
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for option, default in (("--seeds", 500), ("--epochs", 20), ("--failed", 0), ("--to-do", 0)):
        parser.add_argument(option, type=int, default=default)
    make(**vars(parser.parse_args()))
