"""How fast this machine loads, augments, trains, initialises, saves and compiles: `make bench-speed`, in minutes.

Nothing else should run meanwhile. Training is compared with what a plain product of matrices reaches; operations are
those of the models' own count, which `tests/benchmark/test_model_contract.py` holds against torch's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.random_images import CLASSES, beton, random_data
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.image_files.beton import ffcv_missing
from vitinit.benchmark.models.build import build_model, counts
from vitinit.benchmark.models.family import BaseModelSpec, ModelSpec
from vitinit.benchmark.spec import Recipe
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.methods.impulse.solvers import Gradient
from vitinit.initializers.registry import Job
from vitinit.initializers.streams import stream
from vitinit.runners.basics.machine import cores, default_device, lacks_compiler
from vitinit.runners.loaders import make_loader
from vitinit.runners.training.checkpoint import Checkpoints
from vitinit.runners.training.train import DTYPES, Training, train

MODELS = {"vit_tiny/4": (32, 4), "vit_tiny/2": (32, 2)}
FLIP = {"hflip": 0.5}
RAND = {**FLIP, "rand_augment": "rand-m9-mstd0.5-inc1"}
AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "flip": FLIP,
    "flip, RandAugment": RAND,
    "flip, RandAugment, mixup, cutmix, erasing": {**RAND, "mixup": 0.8, "cutmix": 1.0, "random_erasing": 0.25},
}
BACKWARD = 2
"""The gradients of a matrix product are two products of its size."""
FEW_STEPS = 50
"""Of the solver `gradient`, whose steps take as long as one another."""


def recipe(batch_size: int, precision: str = "fp32", **augmentation: Any) -> Recipe:
    """Training as in arXiv 2404.01139 where it costs time."""
    fields = {"lr": 1e-3, "weight_decay": 0.01, "clip_grad": 3.0, "label_smoothing": 0.1, "epochs": 100}
    return Recipe.model_validate(
        {"name": "speed", "batch_size": batch_size, "precision": precision, **fields, **augmentation}
    )


WARM_UP = 2
"""Steps that are not timed."""
MOST_STEPS = 40
SECONDS = 1.0
"""So long steps are timed, and one at least."""
CPU_BATCH = 32
"""Batch size on a CPU, where an image takes as long in a larger batch."""


class _Enough(Exception):
    """Has been measured long enough."""


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


def median(work: Callable[[], object], device: torch.device, times: int = 3) -> float:
    """Seconds that it takes."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def peak(precision: str, device: torch.device) -> float:
    """GFLOP/s of a product of two large matrices."""
    size = 8192 if device.type == "cuda" else 2048
    left, right = (torch.randn(size, size, device=device).to(DTYPES.get(precision, torch.float32)) for _ in range(2))
    return 2e-9 * size**3 / median(lambda: left @ right, device)


def loaders(device: torch.device) -> None:
    data = random_data(50_000, 32)
    with tempfile.TemporaryDirectory() as folder:
        sources = {"resident": data} | ({} if ffcv_missing() else {"ffcv": beton(data, Path(folder))})
        for name, images in sources.items():
            for augmentation, fields in AUGMENTATIONS.items():
                loader = make_loader(images, recipe(512, **fields), 0, device)
                sum(len(labels) for _, labels in loader.train(0))  # the first epoch warms up
                start = time.perf_counter()
                count = sum(len(labels) for _, labels in loader.train(1))
                print(f"{name}, {augmentation}: {count / (time.perf_counter() - start):,.0f} images/s")


def training(models: dict[str, ModelSpec], device: torch.device) -> None:
    for precision in ("fp32", "bf16", "fp16") if device.type == "cuda" else ("fp32", "bf16"):
        most = peak(precision, device)
        print(f"{precision}: product of matrices {most:,.0f} GFLOP/s")
        for name, model in models.items():
            rate = 1 / seconds_per_image(model, recipe(512, precision, **RAND), device)
            gflops = 1e-9 * rate * (1 + BACKWARD) * counts(model).operations
            print(f"{name}, {precision}: {rate:,.0f} images/s, {gflops:,.0f} GFLOP/s, {gflops / most:.2f} of that")


def initializers(models: dict[str, ModelSpec], device: torch.device) -> None:
    for label, spec in models.items():
        model = build_model(spec, CLASSES).to(device)
        noise = partial(torch.randn, 3, spec.image_size, spec.image_size, device=device)
        job = Job(training_images=lambda count, noise=noise: torch.stack([noise() for _ in range(count)]))
        for name in registry.names():
            variants = [{"solver": solver} for solver in ("rotation", "svd")] if name == "impulse" else [{}]
            variants += [{"solver": Gradient(steps=FEW_STEPS).model_dump()}] if name == "impulse" else []
            for params in variants:
                part = registry.build(name, params)
                try:
                    part.check(model)
                except VitinitError:
                    continue
                apply = partial(part.apply, model, stream(0, "speed"), job)
                print(f"{label}, {name} {params or ''}: {median(apply, device):.3f} s")


def checkpoints(models: dict[str, ModelSpec], device: torch.device) -> None:
    for name, spec in models.items():
        state = Training(build_model(spec, CLASSES).to(device), recipe(8), 1, device)
        for parameter in state.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        state.optimizer.step()  # so that it has its moments
        with tempfile.TemporaryDirectory() as folder:
            saved, content = Checkpoints(Path(folder), 5.0, print), {"training": state.state_dict()}
            seconds = median(partial(saved.save, content, 1), device)
            size = max(file.stat().st_size for file in Path(folder).iterdir())
        print(f"{name}: {size / 1e6:.0f} MB in {seconds:.2f} s")


def compiling(models: dict[str, ModelSpec], device: torch.device) -> None:
    if lacking := lacks_compiler(device.type):
        print(lacking)
        return
    name, spec = next(iter(models.items()))
    start = time.perf_counter()
    compiled = seconds_per_image(spec, recipe(512), device, compiled=True)
    took = time.perf_counter() - start
    plain = seconds_per_image(spec, recipe(512), device)
    print(f"{name}: {plain / compiled:.2f} times as fast compiled; {took:.0f} s with compiling")


PARTS = {part.__name__: part for part in (training, initializers, checkpoints, compiling)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["loaders", *PARTS], nargs="+", default=["loaders", *PARTS])
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--threads", type=int, default=cores())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    chosen = {
        name: resolve_model({"preset": name.partition("/")[0], "image_size": size, "patch_size": patch})
        for name, (size, patch) in MODELS.items()
    }
    for part in given.only:
        print(f"== {part}")
        if part == "loaders":
            loaders(torch.device(given.device))
        else:
            PARTS[part](chosen, torch.device(given.device))
