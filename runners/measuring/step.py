"""One short measurement in place of records: how long this machine trains on an image."""

from __future__ import annotations

import time
from contextlib import suppress

import torch
from torch import Tensor

from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.spec import Recipe
from vitinit.initializers import registry
from vitinit.runners.basics.streams import stream
from vitinit.runners.loaders import make_loader
from vitinit.runners.training.train import Training, train

CLASSES = 10
WARM_UP = 2
"""Steps that are not timed."""
MOST_STEPS = 40
SECONDS = 1.0
"""So long steps are timed, and one at least."""
CPU_BATCH = 32
"""Batch size on a CPU, where an image takes as long in a larger batch."""


class _Enough(Exception):
    """Has been measured long enough."""


def random_data(count: int, size: int) -> Data:
    """Noise, with labels."""
    generator = torch.Generator().manual_seed(0)

    def integers(limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, generator=generator, dtype=torch.uint8)

    train_split = Split(integers(256, count, 3, size, size), integers(CLASSES, count).long())
    test_split = Split(train_split.images[:CLASSES], train_split.labels[:CLASSES])
    return Data(train_split, test_split, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, "")


def seconds_per_image(model: BaseModelSpec, recipe: Recipe, device: torch.device, compiled: bool = False) -> float:
    """Time the training loop itself on random images of the model's size, loading and augmentation included."""
    size = recipe.batch_size if device.type == "cuda" else min(recipe.batch_size, CPU_BATCH)
    recipe = recipe.model_copy(update={"batch_size": size})
    loader = make_loader(random_data(size * MOST_STEPS, model.image_size), recipe, 0, device)
    built = build_model(model, CLASSES)
    registry.build("trunc_normal", {}).apply(built, stream(0, "measure"), lambda done, total: None)
    training = Training(built.to(device), recipe, loader.steps, device)
    times: list[float] = []

    def between_steps() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter())
        if len(times) > WARM_UP and (len(times) == loader.steps or times[-1] - times[WARM_UP - 1] > SECONDS):
            raise _Enough

    with suppress(_Enough):
        train(training, loader, 0, between_steps=between_steps, compiled=compiled)
    return (times[-1] - times[WARM_UP - 1]) / (len(times) - WARM_UP) / size
