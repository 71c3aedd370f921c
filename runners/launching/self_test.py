"""Check that this machine trains as it should, in two minutes: what a user can send when something is wrong."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, Recipe, RunSpec
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError, cause, plain
from vitinit.runners.basics.environment import code, environment, set_flags, tensor_floats
from vitinit.runners.basics.machine import cores
from vitinit.runners.basics.setting import Event, Execution, Setting
from vitinit.runners.basics.stop import Stop
from vitinit.runners.basics.streams import stream
from vitinit.runners.measuring.step import seconds_per_image
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.training.train import DTYPES

SIZE = 256
"""Rows and columns of the matrices that are multiplied."""
PRODUCT_ERROR = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3}
"""Largest relative error of a product of them; operands of bf16 keep 8 bits, of fp16 and tf32 11."""
LOSS_ERROR = 0.01
"""Largest relative difference between the training losses of a GPU's and the CPU's first epoch."""
WEIGHT_ERROR = 1e-4
"""Largest difference between initial weights of a GPU and of the CPU, relative to the largest of a tensor."""
TRAINED = {"procedural"}
"""Methods that train: their weights agree with the CPU's no more than those of a run do."""
RUN = ViT(image_size=8, patch_size=2, width=48, depth=2, heads=4)
RECIPE = Recipe(name="self-test", epochs=3, batch_size=128, lr=3e-3, clip_grad=1.0, rand_augment="rand-m9-mstd0.5-inc1")
TIMED_BATCH = 512
"""Batch size at which training is timed on a GPU."""
PROCESSES_S = 300
"""Seconds after which two processes that do not end count as failed."""


@dataclass(frozen=True)
class Tried:
    """One part of the self-test and how it ended."""

    what: str
    result: Literal["ok", "failed", "skipped"]
    said: str

    def __str__(self) -> str:
        return f"{self.result:<8}{self.what}: {self.said}"


def machine(device: str) -> list[str]:
    """Return lines about the software and the hardware that `device` (`cpu`, `cuda` or `mps`) means here."""
    facts = environment(torch.device(device), code())
    lines = [f"Python {facts['python']}, torch {torch.__version__}, {facts['platform']}, {cores()} cores"]
    if device == "cuda":
        lines.append(f"CUDA {facts['cuda']}, cuDNN {facts['cudnn']}, driver {facts['driver'] or 'unknown'}")
        for index in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(index)
            capability = f"compute capability {gpu.major}.{gpu.minor}"
            lines.append(f"GPU {index}: {gpu.name}, {gpu.total_memory / 2**30:.0f} GiB, {capability}")
    return lines


def self_test(device: str, folder: Path) -> Iterator[Tried]:
    """Try all parts one after another; a part that fails does not end the test.

    Args:
        device: `cpu`, `cuda` or `mps`.
        folder: empty; runs are recorded there.
    """
    execution = Execution(device, cores(), "inline")
    set_flags(replace(execution, deterministic=True))  # what cuBLAS reads at its first call
    ampere = device == "cuda" and torch.cuda.get_device_capability() >= (8, 0)
    precisions = [precision for precision in PRODUCT_ERROR if precision != "tf32" or ampere]
    runs = _Runs(folder, execution)
    parts: dict[str, Callable[[], str]] = {}
    for precision in precisions:
        parts[f"product of matrices, {precision}"] = partial(_product, device, precision)
    for precision in precisions:
        parts[f"a run, {precision}"] = partial(runs.trained, precision)
    parts |= {
        "the same run twice, deterministic": runs.twice,
        "a run stopped and resumed, deterministic": runs.resumed,
        "two processes": runs.two_processes,
    }
    if device == "cpu":
        parts["speed, fp32"] = partial(_speed, execution, "fp32", "vit_micro")
    else:
        parts["initial weights"] = partial(_initial_weights, device)
        for precision in precisions:
            parts[f"speed, {precision}"] = partial(_speed, execution, precision, "vit_tiny")
    for what, part in parts.items():
        try:
            yield Tried(what, "ok", part())
        except _Impossible as reason:
            yield Tried(what, "skipped", str(reason))
        except _Wrong as error:
            yield Tried(what, "failed", str(error))
        except Exception as error:  # anything may be wrong with a machine
            yield Tried(what, "failed", plain(cause(error), 300))


class _Impossible(Exception):
    """A part cannot be tried on this machine."""


class _Wrong(Exception):
    """A part has ended, with another result than it should."""


class _Runs:
    """Small runs on digits, each recorded in a folder of its own."""

    def __init__(self, folder: Path, execution: Execution) -> None:
        self.folder, self.execution = folder, execution

    def run(self, precision: str, execution: Execution, stop_after: int | None = None) -> RunRecord:
        """Carry a run out; with `stop_after`, stop it after that epoch and resume it."""
        root = Path(tempfile.mkdtemp(dir=self.folder))
        spec = RunSpec(
            dataset=DatasetSpec(name="digits"),
            model=RUN,
            base=InitializerSpec(name="trunc_normal"),
            method=InitializerSpec(name="mimetic"),
            recipe=RECIPE.model_copy(update={"precision": precision}),
            seed=0,
        )
        setting = Setting(root, "self-test", root, execution, code(), reuse_solutions=False)
        stop = Stop()

        def hear(event: Event) -> None:
            if event.epoch and event.epoch.epoch == stop_after:
                stop.request("self-test")

        end = carry_out(Cell("Mimetic", spec), setting, stop, hear)
        if stop_after is not None and end.status == "stopped":
            end = carry_out(Cell("Mimetic", spec), setting, Stop())
            if isinstance(end, RunRecord) and len(end.sessions) != 2:
                raise _Wrong("it began anew and did not resume")
        if isinstance(end, RunRecord):
            return end
        raise _Wrong(f"the run ended as {end.status}: {end.message if isinstance(end, FailureRecord) else end.reason}")

    def twice(self) -> str:
        """Carry one run out twice."""
        return self._same_bits(None)

    def resumed(self) -> str:
        """Carry a run out, and once more with a stop in the middle."""
        return self._same_bits(1)

    def _same_bits(self, stop_after: int | None) -> str:
        exact = replace(self.execution, deterministic=True)
        first, second = self.run("fp32", exact), self.run("fp32", exact, stop_after)
        if first.weights != second.weights:
            raise _Wrong("the final weights differ")
        return "the same bits"

    def trained(self, precision: str) -> str:
        """Train, and compare the first epoch with the CPU's where it ran on a GPU."""
        record = self.run(precision, self.execution)
        first, last = record.history[0], record.history[-1]
        if not last.train_loss < first.train_loss:
            raise _Wrong(f"the training loss went from {first.train_loss:.4f} to {last.train_loss:.4f}")
        said = f"training loss {first.train_loss:.3f} to {last.train_loss:.3f}, top-1 {last.score:.1f} %"
        if self.execution.device == "cpu" or precision != "fp32":
            return said
        expected = self.run(precision, replace(self.execution, device="cpu")).history[0].train_loss
        difference = abs(first.train_loss / expected - 1)
        if not difference < LOSS_ERROR:
            raise _Wrong(f"training loss of the first epoch {first.train_loss:.5f}, on the CPU {expected:.5f}")
        return f"{said}; first epoch within {difference:.1e} of the CPU's loss"

    def two_processes(self) -> str:
        """Train in two processes that share every batch."""
        if self.execution.device != "cpu" and torch.cuda.device_count() < 2:
            raise _Impossible("one GPU")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += ["-m", "vitinit.runners.cli", "run", "smoke", "--limit", "1", "--executor", "inline", "--wait"]
        command += ["--device", self.execution.device, "--no-download", "--results", str(self.folder / "two")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROCESSES_S)
        if done.returncode:
            raise _Wrong(f"exit code {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
        return "a run has been recorded by " + ("NCCL" if self.execution.device == "cuda" else "gloo")


def _product(device: str, precision: str) -> str:
    generator = torch.Generator().manual_seed(0)
    kind = DTYPES.get(precision, torch.float32)
    left, right = (torch.randn(SIZE, SIZE, generator=generator).to(kind) for _ in range(2))
    exact = left.double() @ right.double()
    with tensor_floats(precision):
        found = (left.to(device) @ right.to(device)).cpu().double()
    error = float((found - exact).norm() / exact.norm())
    if not error < PRODUCT_ERROR[precision]:
        raise _Wrong(f"relative error {error:.1e}, at most {PRODUCT_ERROR[precision]:.0e} expected")
    return f"relative error {error:.1e}"


@dataclass(frozen=True)
class _Shown:
    images: torch.Tensor

    def __call__(self, count: int) -> torch.Tensor:
        return self.images[:count]


def _initial_weights(device: str) -> str:
    """Compare the weights that every base and method gives on a device with those on the CPU."""
    spec, worst, count = resolve_model({"preset": "vit_micro", "image_size": 32, "patch_size": 4}), 0.0, 0
    images = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for name in sorted(set(registry.names()) - TRAINED):
        both = []
        for place in ("cpu", device):
            model = build_model(spec, 10)
            registry.build("trunc_normal", {}).apply(model, stream(0, "self-test/base"), lambda done, total: None)
            model = model.to(place)
            resources = registry.Resources(training_images=_Shown(images.to(place)))
            try:
                part = registry.build(name, {})
                part.check(model)
                part.apply_with(model, stream(0, "self-test"), lambda done, total: None, resources)
            except VitinitError:  # it needs a parameter, or another model
                break
            both.append({key: value.cpu() for key, value in model.state_dict().items()})
        if len(both) < 2:
            continue
        count += 1
        for key, here in both[0].items():
            there = both[1][key]
            error = float((there.double() - here.double()).abs().max() / max(float(here.abs().max()), 1e-12))
            if not error < WEIGHT_ERROR:
                raise _Wrong(f"{name}: {key} differs from the CPU's by {error:.1e} of its largest value")
            worst = max(worst, error)
    return f"{count} bases and methods as on the CPU, largest relative difference {worst:.1e}"


def _speed(execution: Execution, precision: str, preset: str) -> str:
    set_flags(execution)
    recipe = RECIPE.model_copy(update={"precision": precision, "batch_size": TIMED_BATCH})
    device = torch.device(execution.device)
    began = time.perf_counter()
    seconds = seconds_per_image(resolve_model({"preset": preset, "image_size": 32, "patch_size": 4}), recipe, device)
    if not math.isfinite(seconds) or seconds <= 0:
        raise _Wrong(f"{seconds} s for an image")
    memory = f", {torch.cuda.max_memory_allocated(device) / 2**30:.1f} GiB" if device.type == "cuda" else ""
    took = time.perf_counter() - began
    return f"{preset} at 32 px, patch 4: {1 / seconds:,.0f} images/s{memory} ({took:.0f} s)"
