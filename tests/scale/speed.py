"""Speed of this machine, with nothing else running: `make bench-speed` for loaders, `make bench-gpu` for all parts."""

import itertools
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import timm.data
import torch
import yaml
from torch.utils.flop_counter import FlopCounterMode

from tests.miniature import real_photographs
from tests.random_images import beton, random_data
from vitinit.benchmark.grids.grid import resolve_model
from vitinit.benchmark.image_files.beton import ffcv_missing, prepare_beton
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.runners.basics.environment import cores, default_device, lacks_compiler
from vitinit.runners.loaders.base import make_loader, open_data
from vitinit.runners.training.train import Training, autocast, train

DEVICE = torch.device(default_device())
GPU = DEVICE.type == "cuda"
STEPS = 100 if GPU else 2
DTYPES = {"tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LARGE, SMALL, AUGMENTATIONS = yaml.safe_load(Path(__file__).with_name("speed.yaml").read_bytes()).values()
RAND = AUGMENTATIONS["flip, RandAugment"]


def recipe(batch_size, **fields):
    return Recipe.model_validate({"name": "speed", "batch_size": batch_size, "lr": 1e-3, "epochs": 2, **fields})


def show(what, images, more=""):
    print(f"{what:60} {images:10,.0f} images/s{more}", flush=True)


def rate(*passes):
    """Images per second of the last pass; the ones before it warm up."""
    for batches in passes:
        start = time.perf_counter()
        count = sum(len(labels) for _, labels in batches())
        if GPU:
            torch.cuda.synchronize()
    return count / (time.perf_counter() - start)


def loaders():
    data = random_data(512 * STEPS, 32)
    with tempfile.TemporaryDirectory() as folder:
        sources = {"resident": data} | ({} if ffcv_missing() else {"ffcv": beton(data, Path(folder))})
        for (name, images), (augmentation, fields) in itertools.product(sources.items(), AUGMENTATIONS.items()):
            epochs = make_loader(images, recipe(512, **fields), 0, DEVICE).train
            show(f"{name}, {augmentation}", rate(partial(epochs, 0), partial(epochs, 1)))


def trained(model, how, steps, compile=False, **told):
    loader = make_loader(random_data(how.batch_size * steps, 32), how, 0, DEVICE)
    training = Training(build_model(resolve_model(model), 10).to(DEVICE), how, loader.steps, DEVICE)
    train(training, loader, compile=compile, **told)
    return training.history[-1].images_per_s


def steps():
    """Training of ViT-Tiny with RandAugment; timm's way on a batch that stays on the device."""
    model = build_model(resolve_model(LARGE), 10).to(DEVICE)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, 32, 32, device=DEVICE))
    for precision, dtype in DTYPES.items() if GPU else ():
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        matrix = torch.randn(8192, 8192, device=DEVICE, dtype=dtype)
        products = lambda matrix=matrix: ((None, matrix @ matrix) for _ in range(20))  # noqa: E731
        peak = rate(products, products) * 2 * 8192**2
        for compile, batch in ((False, 128), (False, 512), (True, 512)):
            images = trained(LARGE, recipe(batch, precision=precision, clip_grad=1.0, **RAND), STEPS, compile)
            share = 3 * counter.get_total_flops() * images / peak
            show(f"{precision}, batch {batch}{', compiled' * compile}", images, f", {share:.0%} of a matrix product")
    optimizer, how = torch.optim.AdamW(model.parameters(), fused=True), recipe(512, precision="fp16")
    scaler, loss_of = timm.utils.NativeScaler(device=DEVICE.type), torch.nn.CrossEntropyLoss()
    images, labels = torch.randn(512, 3, 32, 32, device=DEVICE), torch.zeros(512, dtype=torch.long, device=DEVICE)

    def by_timm():
        for _ in range(STEPS):
            with autocast(how, DEVICE):
                loss = loss_of(model(images), labels)
            optimizer.zero_grad()
            scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
            yield images, labels

    show("timm's loop, fp16, batch 512, without data", rate(by_timm, by_timm))


def alongside(barrier):
    torch.set_num_threads(1)
    return trained(SMALL, recipe(64, **RAND), 4 * STEPS, on_epoch=lambda row: barrier.wait())


def together():
    """Runs of ViT-micro at once, batch 64, fp32: images of all."""
    spawn = get_context("spawn")
    for runs in (1, 2, 4, 8, 12):
        with spawn.Manager() as manager, ProcessPoolExecutor(runs, spawn) as pool:
            show(f"{runs} runs at once", sum(pool.map(alongside, [manager.Barrier(runs)] * runs)))


def jpegs(side=224, batch=64):
    """Random resized crops and flips of photographs' size: our two loaders beside timm's, in turns."""
    how, wholes = recipe(batch, hflip=0.5, crop_scale=(0.08, 1.0)), real_photographs()
    with tempfile.TemporaryDirectory() as folder:
        for split, label, number in itertools.product(("train", "test"), "ab", range(512)):
            place = Path(folder, split, label)
            place.mkdir(parents=True, exist_ok=True)
            part = wholes[number % 2].crop((left := number % 140, top := number % 52, left + 500, top + 375))
            part.save(place / f"{number}.jpg", quality=90)
        spec = DatasetSpec(name="folder", path=folder)
        epochs = {"files": make_loader(open_data(spec, side, Path(folder), cropped=True), how, 0, DEVICE).train}
        if not ffcv_missing():
            prepare_beton(spec, None, Path(folder), lambda done, total: None)
            epochs["ffcv"] = make_loader(
                open_data(spec, side, Path(folder), "ffcv", cropped=True), how, 0, DEVICE
            ).train
        theirs = timm.data.create_loader(
            timm.data.ImageDataset(str(Path(folder, "train"))), (3, side, side), batch, is_training=True, hflip=0.5,
            interpolation="random", num_workers=cores(), use_prefetcher=False, persistent_workers=True,
        )  # fmt: skip
        epochs["timm"] = lambda epoch: theirs
        rates = [{name: rate(partial(images, epoch)) for name, images in epochs.items()} for epoch in range(6)]
        for name in epochs:  # the first epoch warms up
            found = [rates[epoch][name] for epoch in range(1, 6)]
            show(f"{side} px, {name}", statistics.median(found), f", {min(found):,.0f} to {max(found):,.0f}")


if __name__ == "__main__":
    torch.set_num_threads(cores())
    reasons = {
        "steps of a GPU": not GPU and "no CUDA GPU",
        "FFCV": ffcv_missing(),
        "compiled": lacks_compiler(DEVICE.type),
    }
    for part, reason in reasons.items():
        if reason:
            print(f"{part}: not measured: {reason}", flush=True)
    for part in sys.argv[1:]:
        globals()[part]()
