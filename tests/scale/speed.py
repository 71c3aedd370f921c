"""Speed of this machine in loading and augmenting: `make bench-speed`, in minutes, with nothing else running."""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import timm.data
import torch
from PIL import Image

from tests.random_images import beton, random_data
from vitinit.benchmark.image_files.beton import ffcv_missing, prepare_beton
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.runners.basics.machine import cores, default_device
from vitinit.runners.loaders import make_loader, open_data

RAND = {"hflip": 0.5, "rand_augment": "rand-m9-mstd0.5-inc1"}
AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "flip, RandAugment": RAND,
    "flip, RandAugment, mixup, cutmix, erasing": {**RAND, "mixup": 0.8, "cutmix": 1.0, "random_erasing": 0.25},
}


def recipe(batch_size: int, **augmentation: Any) -> Recipe:
    """One epoch of these batches."""
    return Recipe.model_validate({"name": "speed", "batch_size": batch_size, "lr": 1e-3, "epochs": 1, **augmentation})


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


PARTS = {part.__name__: part for part in (loaders, jpegs)}

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
