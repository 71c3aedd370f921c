"""What `vitinit speed` measures: the real loaders, the real training loop, the real initialisers, on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.family import ModelSpec
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.spec import Recipe
from vitinit.benchmark.speed import (
    CheckpointSpeed,
    CompileSpeed,
    InitSpeed,
    LoaderSpeed,
    TrainingSpeed,
    training_flops,
)
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.methods.impulse import Impulse
from vitinit.initializers.methods.impulse.solvers import Gradient
from vitinit.initializers.registry import Resources
from vitinit.runners.basics.environment import set_flags
from vitinit.runners.basics.machine import lacks_compiler
from vitinit.runners.basics.setting import Execution, SaveInterval
from vitinit.runners.basics.streams import stream
from vitinit.runners.loaders import Loader, make_loader
from vitinit.runners.measuring.precision import HOPELESS, products
from vitinit.runners.measuring.random_images import CLASSES, random_data
from vitinit.runners.training.checkpoint import Checkpoints
from vitinit.runners.training.train import DTYPES, Training, train

AUGMENTATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "flip": {"hflip": 0.5},
    "flip, RandAugment": {"hflip": 0.5, "rand_augment": "rand-m9-mstd0.5-inc1"},
    "flip, RandAugment, mixup, cutmix, erasing": {
        "hflip": 0.5,
        "rand_augment": "rand-m9-mstd0.5-inc1",
        "mixup": 0.8,
        "cutmix": 1.0,
        "random_erasing": 0.25,
    },
}
PAPERS = "flip, RandAugment"
"""The augmentation of arXiv 2404.01139 on small datasets."""
LOADER_BATCH = 512
IMAGES = 50_000
"""As many as CIFAR-10 has to train on."""
LARGEST_BATCH = IMAGES // 3
"""Of an epoch, the third step is the first that is measured."""
STEPS = 90
"""So many batches there are of images of other sizes. None but those of one epoch are measured."""
FEW_STEPS = Gradient(steps=50)
SCALING = {"batch_size": (16, 64, 256), "grid": (4, 8, 16), "width": (96, 192, 384)}
"""One of them is changed at a time, from the middle value of each."""


@dataclass
class Meter:
    """Measures on one device; a slow machine is given more time, not fewer repetitions."""

    device: torch.device
    seconds: float = 2.0
    """At least so long for each number."""
    matmul_gflops: dict[str, float] = field(default_factory=dict)
    """The best so far, by precision."""

    @property
    def cuda(self) -> bool:
        """Whether this is a GPU."""
        return self.device.type == "cuda"

    @property
    def matmul_size(self) -> int:
        """Rows and columns of the matrices whose product is the peak."""
        return 8192 if self.cuda else 2048

    @cached_property
    def left_out(self) -> dict[str, str]:
        """Precisions that are hopeless here, and why."""
        if self.cuda:
            return {}
        measured = products()
        return {name: measured.describe(name) for name in ("bf16",) if measured.times_slower(name) >= HOPELESS}

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those worth measuring here: on a CPU, bf16 stands for fp16."""
        asked = ("fp32", "bf16", "fp16") if self.cuda else ("fp32", "bf16")
        return tuple(name for name in asked if name not in self.left_out)

    @property
    def batch_size(self) -> int:
        """The paper's on a GPU."""
        return 512 if self.cuda else 64

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def matmul(self, precision: str) -> None:
        """Take the matmul peak once more; to be called next to whatever is compared with it."""
        size = self.matmul_size
        left, right = (torch.randn(size, size, device=self.device).to(DTYPES[precision]) for _ in range(2))
        began = time.perf_counter()
        for number in range(6):
            if number > 1 and time.perf_counter() - began > self.seconds:
                break
            self.wait()
            start = time.perf_counter()
            left @ right
            self.wait()
            gflops = 2e-9 * size**3 / (time.perf_counter() - start)
            self.matmul_gflops[precision] = max(gflops, self.matmul_gflops.get(precision, 0.0))

    @cached_property
    def data(self) -> Data:
        """Random images of CIFAR's size: the speed does not depend on what they show."""
        return random_data(IMAGES, 32)

    def loader(self, name: str, loader: Loader, augmentation: str, image_size: int) -> LoaderSpeed:
        """Whole epochs, until the time is over."""
        count, epoch, elapsed = 0, 0, 0.0
        while elapsed < self.seconds or epoch < 2:
            self.wait()
            start = time.perf_counter()
            for images, _ in loader.train(epoch):
                count += len(images) * (epoch > 0)
                if epoch and time.perf_counter() - start + elapsed > self.seconds:
                    break
            self.wait()
            elapsed += (time.perf_counter() - start) * (epoch > 0)  # the first warms up
            epoch += 1
        return LoaderSpeed(
            loader=name,
            augmentation=augmentation,
            batch_size=loader.recipe.batch_size,
            image_size=image_size,
            images_per_s=count / elapsed,
        )

    def training(
        self,
        name: str,
        model: ModelSpec,
        precision: str,
        batch_size: int | None = None,
        augmentation: str = PAPERS,
        compiled: bool = False,
    ) -> TrainingSpeed:
        """The training loop itself, stopped in its first epoch."""
        size = batch_size or self.batch_size
        data = self.data if model.image_size == 32 else random_data(size * STEPS, model.image_size)
        rate, memory = self.steps(data, model, recipe(size, precision, **AUGMENTATIONS[augmentation]), compiled)
        self.matmul(precision)
        gflops = 1e-9 * rate * training_flops(model, CLASSES)
        share = gflops / self.matmul_gflops[precision]
        return TrainingSpeed(
            model=name,
            arch=model.arch,
            image_size=model.image_size,
            patch_size=model.patch_size,
            tokens=model.grid**2,
            width=model.width,
            depth=model.depth,
            batch_size=size,
            precision=precision,
            compiled=compiled,
            augmentation=augmentation,
            images_per_s=rate,
            gflops=gflops,
            share_of_peak=share if share <= 1 else None,
            peak_memory_mib=memory,
        )

    def steps(self, data: Data, model: ModelSpec, settings: Recipe, compiled: bool) -> tuple[float, float]:
        """Training images a second from the third step on, and the peak of memory in MiB."""
        loader = make_loader(data, settings, 0, self.device)
        training = new_training(model, settings, loader.steps, self.device)
        times: list[float] = []
        reset_peak_memory(self.device)

        def between_steps() -> None:
            if len(times) in (1, 2) or not self.cuda:
                self.wait()
            times.append(time.perf_counter())
            if len(times) > 2 and (len(times) == loader.steps or times[-1] - times[1] > self.seconds):
                self.wait()
                times[-1] = time.perf_counter()
                raise _Enough

        with contextlib.suppress(_Enough):
            train(training, loader, 0, between_steps=between_steps, compiled=compiled)
        return (len(times) - 2) * settings.batch_size / (times[-1] - times[1]), peak_memory_mib(self.device)

    def initializers(self, models: dict[str, ModelSpec]) -> Iterator[InitSpeed]:
        """Every base and method that fits, on every model; the solvers of `impulse` one by one."""
        for label, spec in models.items():
            model = build_model(spec, CLASSES).to(self.device)
            resources = Resources(training_images=partial(self._noise, spec.image_size))
            for name in registry.names():
                for params in _variants(name):
                    part = registry.build(name, params)
                    try:
                        part.check(model)
                    except VitinitError:
                        continue
                    seconds = self.median(partial(part.apply_with, model, stream(0, "speed"), _no_progress, resources))
                    measured = isinstance(part, Impulse) and part.solver == FEW_STEPS
                    yield InitSpeed(
                        initializer=name,
                        params={**params, "solver": "gradient"} if measured else params,
                        model=label,
                        tokens=spec.grid**2,
                        seconds=seconds * Gradient().steps / FEW_STEPS.steps if measured else seconds,
                        measured_steps=FEW_STEPS.steps if measured else None,
                    )

    def _noise(self, size: int, count: int) -> torch.Tensor:
        """In place of training images, for the methods that need some."""
        return torch.randn(count, 3, size, size, device=self.device)

    def median(self, work: Callable[[], object]) -> float:
        """Seconds that it takes, of three times."""
        seconds = []
        for _ in range(3):
            self.wait()
            start = time.perf_counter()
            work()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    def checkpoint(self, name: str, model: ModelSpec, folder: Path) -> CheckpointSpeed:
        """Writing one, the disk included."""
        training = new_training(model, recipe(8, "fp32"), 1, self.device)
        for parameter in training.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        training.optimizer.step()  # so that it has its moments
        with tempfile.TemporaryDirectory(dir=folder) as place:
            checkpoints, step = Checkpoints(Path(place), SaveInterval(), print), iter(range(99))
            seconds = self.median(lambda: checkpoints.save({"training": training.state_dict()}, next(step)))
            size = max(file.stat().st_size for file in Path(place).iterdir())
        return CheckpointSpeed(model=name, megabytes=size / 1e6, seconds=seconds)

    def compiling(self, name: str, model: ModelSpec, precision: str) -> CompileSpeed:
        """With an empty cache, then again in another process; and what is gained.

        Raises:
            VitinitError: there is no compiler.
        """
        if not self.cuda and (lacking := lacks_compiler()):
            raise VitinitError(lacking)
        context, before = multiprocessing.get_context("spawn"), os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        arguments = str(self.device), torch.get_num_threads(), model, precision, self.batch_size
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
            try:
                measured = []
                for _ in range(2):
                    with ProcessPoolExecutor(1, context) as pool:  # which notices a process that was killed
                        measured.append(pool.submit(_compiled, *arguments).result())
            finally:
                os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
                if before is not None:
                    os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
        (first, *_), (again, faster) = measured
        return CompileSpeed(model=name, precision=precision, first_s=first, again_s=again, faster=faster)


class _Enough(Exception):
    """Has been measured long enough."""


def _compiled(device: str, threads: int, model: ModelSpec, precision: str, batch_size: int) -> tuple[float, float]:
    """Seconds to the end of the first compiled step less those of the second, and how many times faster it is then."""
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    set_flags(Execution(device, threads, "inline", compiled=True))
    meter = Meter(torch.device(device))
    settings = recipe(batch_size, precision)
    data = random_data(batch_size * STEPS, model.image_size)
    loader = make_loader(data, settings, 0, meter.device)
    training = new_training(model, settings, loader.steps, meter.device)
    start = time.perf_counter()
    steps: list[float] = []

    def two_steps() -> None:
        meter.wait()
        steps.append(time.perf_counter() - start)
        if len(steps) == 2:
            raise _Enough

    with contextlib.suppress(_Enough):
        train(training, loader, 0, between_steps=two_steps, compiled=True)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for compiled in (True, False) * 2:
        rates[compiled].append(meter.steps(data, model, settings, compiled)[0])
    return max(0.0, 2 * steps[0] - steps[1]), max(rates[True]) / max(rates[False])


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _variants(name: str) -> list[dict[str, Any]]:
    if name != "impulse":
        return [{}]
    solved = [{"solver": solver, "per_layer": each} for solver in ("rotation", "svd") for each in (False, True)]
    return [*solved, {"solver": FEW_STEPS.model_dump()}]


def _no_progress(done: int, total: int) -> None:
    pass


def scaling() -> Iterator[tuple[ModelSpec, int]]:
    """Models of two layers and batch sizes, one of batch, tokens and width changed at a time."""
    middle = {name: values[1] for name, values in SCALING.items()}
    points = [middle] + [{**middle, name: value} for name, values in SCALING.items() for value in values[::2]]
    for point in points:
        width = point["width"]
        yield (
            ViT(image_size=32, patch_size=32 // point["grid"], width=width, depth=2, heads=width // 32),
            point["batch_size"],
        )


def model_of(text: str) -> tuple[str, ModelSpec]:
    """A model by name: PRESET/PATCH at 32 pixels, or PRESET/PATCH@PIXELS.

    Raises:
        VitinitError: there is no such preset, or the numbers do not fit.
    """
    match = re.fullmatch(r"([^/]+)/([0-9]{1,9})(?:@([0-9]{1,9}))?", text)
    if not match:
        raise VitinitError(f"--model {text!r}: write PRESET/PATCH or PRESET/PATCH@PIXELS, for example vit_tiny/4@32")
    preset, patch, pixels = match.groups()
    spec = resolve_model({"preset": preset, "patch_size": int(patch), "image_size": int(pixels or 32)})
    assert isinstance(spec, ModelSpec)  # a preset
    return text, spec


def recipe(batch_size: int, precision: str, **augmentation: Any) -> Recipe:
    """Training as in arXiv 2404.01139 where it costs time."""
    fields = {"lr": 1e-3, "weight_decay": 0.01, "clip_grad": 3.0, "label_smoothing": 0.1, "epochs": 100}
    return Recipe.model_validate(
        {"name": "speed", "batch_size": batch_size, "precision": precision, **fields, **augmentation}
    )


def new_training(model: ModelSpec, settings: Recipe, steps: int, device: torch.device) -> Training:
    """From timm's initialisation."""
    built = build_model(model, CLASSES)
    registry.build("trunc_normal", {}).apply(built, stream(0, "speed"), _no_progress)
    return Training(built.to(device), settings, steps, device)


def reset_peak_memory(device: torch.device) -> None:
    """Begin to watch anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak of the resident size


def peak_memory_mib(device: torch.device) -> float:
    """Since it was reset: allocated on the GPU, or resident of this process; since it began, where that cannot be."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024  # bytes of `ru_maxrss`
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
