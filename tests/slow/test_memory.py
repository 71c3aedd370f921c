"""Training takes no more memory in late epochs than in early ones."""

from __future__ import annotations

import torch

from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.spec import DatasetSpec
from vitinit.runners.loaders import make_loader
from vitinit.runners.measuring.speed import (
    AUGMENTATIONS,
    PAPERS,
    new_training,
    peak_memory_mib,
    recipe,
    reset_peak_memory,
)
from vitinit.runners.training.train import train

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_the_peak_of_vit_tiny_does_not_grow_over_epochs(tmp_path, capsys):
    model = resolve_model({"preset": "vit_tiny", "image_size": 8, "patch_size": 2})
    settings = recipe(64, "fp32", **AUGMENTATIONS[PAPERS]).model_copy(update={"epochs": 6})
    data = load(DatasetSpec(name="digits", train_size=640), 8, tmp_path)
    loader = make_loader(data, settings, 0, DEVICE)
    training, peaks = new_training(model, settings, loader.steps, DEVICE), []

    def on_epoch(_: object) -> None:
        peaks.append(peak_memory_mib(DEVICE))
        reset_peak_memory(DEVICE)

    train(training, loader, 0, on_epoch)
    with capsys.disabled():
        print(f"\npeak of each epoch in MiB: {[round(peak) for peak in peaks]}")
    assert max(peaks[2:]) <= 1.05 * max(peaks[:2])
