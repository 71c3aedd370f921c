"""Training takes no more memory in late epochs than in early ones."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

import pytest
import torch

from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.grids.parts import resolve_model, resolve_recipe
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers import registry
from vitinit.initializers.streams import stream
from vitinit.runners.loaders import make_loader
from vitinit.runners.training.train import Training, train

pytestmark = pytest.mark.slow


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RECIPE = {"name": "small", "batch_size": 64, "epochs": 6, "hflip": 0.5, "rand_augment": "rand-m9-mstd0.5-inc1"}


def reset_peak_memory() -> None:
    """Begin to watch anew."""
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats(DEVICE)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak of the resident size


def peak_memory_mib() -> float:
    """Since it was reset: allocated on the GPU, or resident of this process; since it began, where that cannot be."""
    if DEVICE.type == "cuda":
        return torch.cuda.max_memory_allocated(DEVICE) / 2**20
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024  # bytes of `ru_maxrss`
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def test_the_peak_of_vit_tiny_does_not_grow_over_epochs(tmp_path, capsys):
    model = resolve_model({"preset": "vit_tiny", "image_size": 8, "patch_size": 2})
    settings = resolve_recipe(RECIPE)
    data = load(DatasetSpec(name="digits", train_size=640), 8, tmp_path)
    loader = make_loader(data, settings, 0, DEVICE)
    built = build_model(model, 10)
    registry.build("trunc_normal", {}).apply(built, stream(0, "memory"), lambda done, total: None)
    training, peaks = Training(built.to(DEVICE), settings, loader.steps, DEVICE), []

    def on_epoch(_: object) -> None:
        peaks.append(peak_memory_mib())
        reset_peak_memory()

    train(training, loader, 0, on_epoch=on_epoch)
    with capsys.disabled():
        print(f"\npeak of each epoch in MiB: {[round(peak) for peak in peaks]}")
    assert max(peaks[2:]) <= 1.05 * max(peaks[:2])
