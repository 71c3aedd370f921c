"""Speed of this machine, with nothing else running: `make bench-speed` for loaders, `make bench-gpu` for all parts."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import requires, version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import timm.data
import torch
from packaging.requirements import Requirement
from torch.utils.flop_counter import FlopCounterMode

from tests.miniature import real_photographs
from tests.random_images import beton, random_data
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.image_files.beton import ffcv_missing, prepare_beton
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.optimizers.registry import groups
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.environment import code, environment
from vitinit.runners.basics.machine import cores, default_device, lacks_compiler
from vitinit.runners.loaders import make_loader, open_data
from vitinit.runners.one_run.outcome import now
from vitinit.runners.training.train import Training, autocast, train

RAND = {"hflip": 0.5, "rand_augment": "rand-m9-mstd0.5-inc1"}
AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "flip, RandAugment": RAND,
    "flip, RandAugment, mixup, cutmix, erasing": {**RAND, "mixup": 0.8, "cutmix": 1.0, "random_erasing": 0.25},
}
LARGE = {"preset": "vit_tiny", "image_size": 32, "patch_size": 2}
SMALL = {"preset": "vit_micro", "image_size": 32, "patch_size": 4}
DTYPES = {"tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Rows = Iterator[tuple[str, float, str]]
"""Name of what is measured, number, unit."""


def recipe(batch_size: int, **fields: Any) -> Recipe:
    """One epoch of these batches."""
    return Recipe.model_validate({"name": "speed", "batch_size": batch_size, "lr": 1e-3, "epochs": 1, **fields})


def missing(device: str) -> list[str]:
    """What is not as it should be here, each with the parts that it costs."""
    costs = {"torch finds no CUDA GPU: every number of a GPU, all of make test-gpu": default_device() != "cuda"}
    costs |= {
        f"{text}: {what}": text for text, what in [(lacks_compiler(device), "torch.compile"), (ffcv_missing(), "FFCV")]
    }
    for need in map(Requirement, requires("vitinit") or ()):
        if not need.marker or need.marker.evaluate({"extra": "benchmark"}):
            costs[f"{need}, and {version(need.name)} is here: all that uses it"] = not need.specifier.contains(
                version(need.name)
            )
    return [text for text, holds in costs.items() if holds]


def loaders(device: torch.device, batches: int) -> Rows:
    """Batches of 512 images of 32 px, loaded and augmented, without a model."""
    data = random_data(min(50_000, 512 * batches), 32)
    with tempfile.TemporaryDirectory() as folder:
        sources = {"resident": data} | ({} if ffcv_missing() else {"ffcv": beton(data, Path(folder))})
        for (name, images), (augmentation, fields) in itertools.product(sources.items(), AUGMENTATIONS.items()):
            epochs = make_loader(images, recipe(512, **fields), 0, device).train
            seconds, count = timed(device, partial(epochs, 0), partial(epochs, 1))
            yield f"{name}, {augmentation}", count / seconds, "images/s"


def timed(device: torch.device, *passes: Callable[[], Iterator[Any]]) -> tuple[float, int]:
    """Seconds and images of the last pass; the ones before it warm up."""
    for batches in passes:
        start = time.perf_counter()
        count = sum(len(labels) for _, labels in batches())
        if device.type == "cuda":
            torch.cuda.synchronize()
    return time.perf_counter() - start, count


def peaks(device: torch.device) -> Rows:
    """Matrix products, the most that this device computes."""
    side = 8192 if device.type == "cuda" else 512
    for precision, dtype in DTYPES.items():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        matrix = torch.randn(side, side, device=device, dtype=dtype)
        product = lambda matrix=matrix: ((matrix, (matrix @ matrix)[:1]) for _ in range(10))  # noqa: E731
        seconds, _ = timed(device, product, product)
        yield precision, 10 * 2 * side**3 / seconds / 1e12, "TFLOP/s"


def trained(
    device: torch.device, model: dict[str, Any], how: Recipe, batches: int, compiled: bool = False, **told: Any
) -> float:
    """Images per second of the last epoch of a training, evaluation aside."""
    data = random_data(min(50_000, how.batch_size * batches), model["image_size"])
    loader, built = make_loader(data, how, 0, device), build_model(resolve_model(model), len(data.classes))
    training = Training(built.to(device), how, loader.steps, device)
    train(training, loader, 0, compile=compiled, **told)
    return training.history[-1].images_per_s


def steps(device: torch.device, batches: int) -> Rows:
    """Training of ViT-Tiny, 32 px, 256 tokens, with flip and RandAugment; and timm's way on random tensors."""
    model = build_model(resolve_model(LARGE), 10)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, 32, 32))
    image, limits = 3 * counter.get_total_flops() / 1e12, {}  # TFLOP, forward and backward
    for precision, limits[precision], unit in peaks(device):
        yield f"matrix product, {precision}", limits[precision], unit
    for compiled, precision, batch in itertools.product((False, True), DTYPES, (512, 128)):
        if (compiled and (lacks_compiler(device.type) or batch != 512)) or (
            precision == "tf32" and device.type == "cpu"
        ):
            continue
        how = recipe(batch, precision=precision, epochs=2, clip_grad=1.0, **RAND)
        name = f"{'compiled' if compiled else 'eager'}, {precision}, batch {batch}"
        rate = trained(device, LARGE, how, batches, compiled)
        yield name, rate, f"images/s, {rate * image / limits[precision]:.0%} of the matrix product's peak"
    yield "timm's loop, fp16, batch 512, no data", by_timm(device, batches), "images/s"


def by_timm(device: torch.device, batches: int, batch: int = 512) -> float:
    """The loop of timm's train.py with synthetic data: one batch on the device, again and again."""
    model, how = build_model(resolve_model(LARGE), 10).to(device), recipe(batch, precision="fp16")
    optimizer = torch.optim.AdamW(groups(model, how), lr=1e-3)
    scaler, loss_of = timm.utils.NativeScaler(device=device.type), timm.loss.LabelSmoothingCrossEntropy(0.1)
    images, labels = torch.randn(batch, 3, 32, 32, device=device), torch.zeros(batch, dtype=torch.long, device=device)

    def epoch() -> Iterator[Any]:
        for _ in range(batches):
            with autocast(how, device):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
            yield images, labels

    seconds, count = timed(device, epoch, epoch)
    return count / seconds


def _together(device: str, batches: int) -> float:
    torch.set_num_threads(1)
    how, model = recipe(64, epochs=2, **RAND), SMALL
    return trained(torch.device(device), model, how, batches, on_epoch=lambda row: BARRIER.wait())


def _meet(barrier: Any) -> None:
    global BARRIER
    BARRIER = barrier


def together(device: torch.device, batches: int) -> Rows:
    """Several runs of ViT-micro at once, batch 64, fp32, each in a process of its own: images of all."""
    spawn = get_context("spawn")
    for runs in (1, 2, 4, 8, 12) if device.type == "cuda" else (1, 2):
        with ProcessPoolExecutor(runs, spawn, _meet, (spawn.Barrier(runs),)) as pool:
            rates = list(pool.map(_together, [str(device)] * runs, [4 * batches] * runs))
        yield f"{runs} runs at once", sum(rates), "images/s"


def jpegs(device: torch.device, batches: int, side: int = 224) -> Rows:
    """Random resized crops and flips of photographs' size: our two loaders beside timm's, in turns."""
    wholes, batch = real_photographs(), 64
    count, how = min(1024, batch * batches), recipe(batch, hflip=0.5, crop_scale=(0.08, 1.0))
    with tempfile.TemporaryDirectory() as folder:
        for split, label, number in itertools.product(("train", "test"), "ab", range(count // 2)):
            place = Path(folder, split, label)
            place.mkdir(parents=True, exist_ok=True)
            part = wholes[number % 2].crop((left := number % 140, top := number % 52, left + 500, top + 375))
            part.save(place / f"{number}.jpg", quality=90)
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
            seconds, done = timed(device, partial(images, epoch))
            rates[name] += [done / seconds] if epoch else []  # the first epoch warms up
        for name, found in rates.items():
            yield f"{side} px, {name}", statistics.median(found), f"images/s, {min(found):,.0f} to {max(found):,.0f}"


PARTS = {part.__name__: part for part in (loaders, steps, together, jpegs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["missing", *PARTS], nargs="+", default=PARTS)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--batches", type=int, default=100, help="in an epoch")
    parser.add_argument("--out", type=Path, help="folder of the table as JSON")
    given = parser.parse_args()
    for text in missing(given.device):
        print(f"missing: {text}", flush=True)
    if given.only == ["missing"]:
        return
    torch.set_num_threads(given.threads)
    device, rows = torch.device(given.device), {}
    print(f"{'what':76} {'number':>12} unit")
    for part in given.only:
        try:
            for name, number, unit in PARTS[part](device, given.batches):
                rows[f"{part}: {name}"] = [round(number, 3), unit]
                print(f"{part}: {name}".ljust(76), f"{number:12,.1f} {unit}", flush=True)
        except (VitinitError, RuntimeError, OSError) as error:
            print(f"{part}: {error}", flush=True)
    if given.out:
        driver, facts = Path("/proc/driver/nvidia/version"), environment(given.device, code())
        card = str(facts["gpu"] or facts["processor"])
        facts |= {"cores": cores(), "driver": driver.read_text().splitlines()[0] if driver.is_file() else None}
        file = given.out / f"{card.lower().replace(' ', '-')}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"written": str(now()), **facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
