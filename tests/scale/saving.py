"""What saving costs: `python tests/scale/saving.py` (make bench-saving).

A checkpoint of each model is written as a run writes it, disk included; its share of the training time follows from
the default interval. What is done between two steps when nothing is saved is timed too.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from vitinit.benchmark.grids.parts import resolve_recipe
from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.runners.basics.setting import SaveInterval
from vitinit.runners.training.checkpoint import Checkpoints
from vitinit.runners.training.train import Training

LIMIT_PERCENT = 2.0


def seconds_to_save(preset: str, folder: Path) -> tuple[float, int]:
    """Median time of five saves, and the size of the file."""
    model = build_model(resolve_model({"preset": preset, "image_size": 32, "patch_size": 4}), classes=10)
    training = Training(model, resolve_recipe({"name": "structured2404"}), 100, torch.device("cpu"))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    training.optimizer.step()  # so that it has its moments
    checkpoints = Checkpoints(folder, SaveInterval(), print)
    seconds = []
    for step in range(5):
        start = time.perf_counter()
        checkpoints.save({"training": training.state_dict()}, step)
        seconds.append(time.perf_counter() - start)
    size = next(folder.glob("*.ckpt")).stat().st_size
    checkpoints.remove()
    return statistics.median(seconds), size


def main() -> int:
    """Print a line for each model; 1 when one is over the limit."""
    worst = 0.0
    with tempfile.TemporaryDirectory(dir=".") as folder:
        checkpoints = Checkpoints(Path(folder), SaveInterval(), print)
        start = time.perf_counter()
        for step in range(100_000):
            checkpoints.due(step)
        print(f"nothing to save: {(time.perf_counter() - start) * 10:.2f} microseconds a step")
        for preset in ("vit_micro", "vit_tiny", "vit_small", "vit_base"):
            seconds, size = seconds_to_save(preset, Path(folder))
            interval = max(60 * SaveInterval().minutes, 99 * seconds)
            share = 100 * seconds / (interval + seconds)
            worst = max(worst, share)
            print(f"{preset}: {size / 1e6:.0f} MB, {seconds:.2f} s every {interval / 60:.1f} minutes, {share:.2f}%")
    print(f"limit: {LIMIT_PERCENT}%")
    return int(worst > LIMIT_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
