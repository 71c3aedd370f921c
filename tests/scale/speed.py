"""Speed of this machine in loading, augmenting, training and initialising: `make bench-speed`, in minutes.

Nothing else should run meanwhile. Training is compared with what a plain product of matrices reaches; operations are
those that torch counts.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import timm.data
import torch
from PIL import Image

from tests.operations import operations
from tests.random_images import CLASSES, beton, random_data
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.image_files.beton import ffcv_missing, prepare_beton
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Job
from vitinit.initializers.streams import stream
from vitinit.runners.basics.machine import cores, default_device
from vitinit.runners.loaders import make_loader, open_data
from vitinit.runners.training.train import DTYPES, Training, train

MODELS = {
    f"vit_tiny/{patch}": resolve_model({"preset": "vit_tiny", "image_size": 32, "patch_size": patch})
    for patch in (4, 2)
}
RAND = {"hflip": 0.5, "rand_augment": "rand-m9-mstd0.5-inc1"}
AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "flip, RandAugment": RAND,
    "flip, RandAugment, mixup, cutmix, erasing": {**RAND, "mixup": 0.8, "cutmix": 1.0, "random_erasing": 0.25},
}
WARM_UP, STEPS = 2, 20
"""Steps that are not timed, and all of them."""


def recipe(batch_size: int, precision: str = "fp32", **augmentation: Any) -> Recipe:
    """Training as in arXiv 2404.01139 where it costs time."""
    fields = {"lr": 1e-3, "weight_decay": 0.01, "clip_grad": 3.0, "label_smoothing": 0.1, "epochs": 1}
    return Recipe.model_validate(
        {"name": "speed", "batch_size": batch_size, "precision": precision, **fields, **augmentation}
    )


def seconds_per_image(model: BaseModelSpec, precision: str, device: torch.device) -> float:
    """Time the training loop itself on random images of the model's size, loading and augmentation included."""
    size = 512 if device.type == "cuda" else 32  # on a CPU an image takes as long in a larger batch
    how = recipe(size, precision, **RAND)
    loader = make_loader(random_data(size * STEPS, model.image_size), how, 0, device)
    built = build_model(model, CLASSES)
    registry.build("trunc_normal", {}).apply(built, stream(0, "measure"), Job())
    times: list[float] = []
    training = Training(built.to(device), how, loader.steps, device)
    train(training, loader, 0, between_steps=lambda: times.append(seconds(device)))
    return (times[STEPS - 1] - times[WARM_UP - 1]) / (STEPS - WARM_UP) / size


def seconds(device: torch.device) -> float:
    """The time at which the device has done what it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def median(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that it takes."""
    times = [seconds(device)]
    for _ in range(3):
        work()
        times.append(seconds(device))
    return statistics.median(after - before for before, after in itertools.pairwise(times))


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


def jpegs(device: torch.device, count: int = 1024, side: int = 224) -> None:
    """Random resized crops and flips of photographs' size: our two loaders beside timm's, in turns."""
    random, batch = np.random.default_rng(0), 64
    how = recipe(batch, hflip=0.5, crop_scale=(0.08, 1.0))
    with tempfile.TemporaryDirectory() as folder:
        for split, label, number in itertools.product(("train", "test"), "ab", range(count // 2)):
            place = Path(folder, split, label)
            place.mkdir(parents=True, exist_ok=True)
            coarse = Image.fromarray(random.integers(256, size=(24, 32, 3), dtype=np.uint8)).resize((500, 375))
            noisy = np.asarray(coarse) + random.normal(0, 12, (375, 500, 1))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(place / f"{number}.jpg", quality=90)
        spec = DatasetSpec(name="folder", path=folder)
        ours = {"files": make_loader(open_data(spec, side, Path(folder), cropped=True), how, 0, device)}
        if not ffcv_missing():
            prepare_beton(spec, None, Path(folder), lambda done, total: None)
            ours["ffcv"] = make_loader(open_data(spec, side, Path(folder), "ffcv", cropped=True), how, 0, device)
        theirs = timm.data.create_loader(
            timm.data.ImageDataset(str(Path(folder, "train"))), (3, side, side), batch, is_training=True, hflip=0.5,
            interpolation="random", num_workers=cores(), use_prefetcher=False, persistent_workers=True,
        )  # fmt: skip
        epochs = {name: loader.train for name, loader in ours.items()} | {"timm": lambda epoch: theirs}
        rates: dict[str, list[float]] = {name: [] for name in epochs}
        for epoch, (name, images) in itertools.product(range(6), epochs.items()):
            start = time.perf_counter()
            done = sum(len(labels) for _, labels in images(epoch))
            rates[name] += [done / (time.perf_counter() - start)] if epoch else []  # the first epoch warms up
        for name, found in rates.items():
            median_, least, most = statistics.median(found), min(found), max(found)
            print(f"{name}: {median_:,.0f} images/s ({least:,.0f} to {most:,.0f} in {len(found)} epochs)")


def training(device: torch.device) -> None:
    size = 8192 if device.type == "cuda" else 2048
    for precision in ("fp32", "bf16"):
        left, right = torch.randn(2, size, size, device=device).to(DTYPES.get(precision, torch.float32))
        most = 2e-9 * size**3 / median(partial(torch.matmul, left, right), device)
        print(f"{precision}: product of matrices {most:,.0f} GFLOP/s")
        for name, model in MODELS.items():
            rate = 1 / seconds_per_image(model, precision, device)
            gflops = 3e-9 * rate * operations(model)  # the gradients of a product are two of its size
            print(f"{name}, {precision}: {rate:,.0f} images/s, {gflops:,.0f} GFLOP/s, {gflops / most:.2f} of that")


def initializers(device: torch.device) -> None:
    for label, spec in MODELS.items():
        model = build_model(spec, CLASSES).to(device)
        job = Job(training_images=lambda count: torch.randn(count, 3, 32, 32, device=device))
        for name in registry.names():
            for params in [{"solver": solver} for solver in ("rotation", "svd")] if name == "impulse" else [{}]:
                part = registry.build(name, params)
                try:
                    part.check(model)
                except VitinitError:
                    continue
                took = median(partial(part.apply, model, stream(0, "speed"), job), device)
                print(f"{label}, {name} {params or ''}: {took:.3f} s")


PARTS = {part.__name__: part for part in (loaders, jpegs, training, initializers)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--threads", type=int, default=cores())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for part in given.only:
        print(f"== {part}")
        PARTS[part](torch.device(given.device))
