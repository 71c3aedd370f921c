"""How fast a machine is: the report of `vitinit speed`. Imports no torch."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.models import registry
from vitinit.benchmark.models.family import BaseModelSpec, ModelSpec
from vitinit.initializers.errors import VitinitError, explain

BACKWARD = 2
"""The gradients of a matrix product are two products of its size."""

Share = Annotated[float, Field(ge=0)]


class LoaderSpeed(Frozen):
    """Training batches of 3 x `image_size` x `image_size`, uint8 in memory or on the disk to float32 on the device."""

    loader: str
    augmentation: str
    batch_size: PositiveInt
    image_size: PositiveInt
    images_per_s: PositiveFloat


class TrainingSpeed(Frozen):
    """Training a model, with loading and augmentation unless `augmentation` is `none, one batch again and again`."""

    model: str
    arch: str = "vit"
    """As in a ModelSpec; reports of before this was taken have ViTs only."""
    image_size: PositiveInt
    patch_size: PositiveInt
    tokens: PositiveInt
    width: PositiveInt
    depth: PositiveInt
    batch_size: PositiveInt
    precision: Literal["fp32", "bf16", "fp16"]
    compiled: bool
    augmentation: str
    images_per_s: PositiveFloat
    gflops: PositiveFloat
    """10^9 operations of matrix products a second, of forward and backward pass."""
    share_of_peak: Share | None
    """Of `matmul_gflops` at this precision; None where training was faster: those products are no peak then."""
    peak_memory_mib: NonNegativeFloat
    """Of the device: allocated on a GPU, resident on a CPU, everything of the process included."""


class InitSpeed(Frozen):
    """Setting the weights of a model: base or method alone."""

    initializer: str
    params: dict[str, Any]
    model: str
    tokens: PositiveInt
    seconds: NonNegativeFloat
    measured_steps: PositiveInt | None = None
    """Of a solver that takes many equal steps: so many were measured, and `seconds` is in proportion to all."""


class CheckpointSpeed(Frozen):
    """Writing what a run needs to go on, to the disk of the results folder."""

    model: str
    megabytes: NonNegativeFloat
    seconds: NonNegativeFloat


class CompileSpeed(Frozen):
    """torch.compile until the first step is through, and what it is good for."""

    model: str
    precision: str
    first_s: NonNegativeFloat
    """With nothing compiled before."""
    again_s: NonNegativeFloat
    """In a new process, as for the next seed of a study: compiled code is found on the disk."""
    faster: PositiveFloat
    """Images a second, compiled over not compiled."""


class SpeedReport(Frozen):
    """What `vitinit speed` has measured, all in one go."""

    version: Literal[1] = 1
    written: str
    """UTC, ISO 8601."""
    device: Literal["cpu", "cuda"]
    threads: PositiveInt
    machine: dict[str, Any]
    """The environment as in a record: processor, GPU, libraries, commit."""
    matmul_gflops: dict[str, PositiveFloat]
    """By precision: the best of several products of two square matrices."""
    matmul_size: PositiveInt
    loaders: list[LoaderSpeed]
    training: list[TrainingSpeed]
    scaling: list[TrainingSpeed]
    initializers: list[InitSpeed]
    checkpoints: list[CheckpointSpeed]
    compiling: list[CompileSpeed]

    @property
    def name(self) -> str:
        """The GPU or processor, for people."""
        return str(self.machine.get("gpu") or self.machine.get("processor"))

    def gflops(self, model: BaseModelSpec, precision: str) -> float | None:
        """What training such a model reaches here: that of the nearest shape measured at this precision, if any.

        Families of another kind say nothing of it. Where fp16 was not measured (on a CPU), bf16 stands for it.
        """
        if not isinstance(model, ModelSpec):  # only shapes of these are measured
            return None
        rows = [row for row in (*self.training, *self.scaling) if not row.compiled]
        alike = {name for name, family in registry.families().items() if family.kind == model.kind}
        rows = [row for row in rows if row.arch in alike]
        if precision == "fp16" and all(row.precision != precision for row in rows):
            precision = "bf16"
        known = [row for row in rows if row.precision == precision]
        if not known:
            return None

        def distance(row: TrainingSpeed) -> float:
            return math.hypot(math.log(row.tokens / model.grid**2), math.log(row.width / model.width))

        least = min(map(distance, known))
        return max(row.gflops for row in known if distance(row) == least)


def training_flops(model: BaseModelSpec, classes: int) -> float:
    """Of one image: forward and backward pass."""
    return (1 + BACKWARD) * model.forward_operations(classes)


NAME = "speed.json"


def path(root: Path, report: SpeedReport) -> Path:
    """Where a report goes: one file a machine and device."""
    machine = f"{report.name} {report.threads} threads" if report.device == "cpu" else report.name
    slug = re.sub(r"[^a-z0-9.]+", "-", machine.lower()).strip("-")
    return root / "speed" / slug / NAME


def read(file: Path) -> SpeedReport:
    """A report from its file.

    Raises:
        VitinitError: it cannot be read, or is no such report.
    """
    try:
        return SpeedReport.model_validate_json(file.read_bytes())
    except OSError as error:
        raise VitinitError(f"cannot read {file}: {error.strerror or error}") from None
    except ValidationError as error:
        raise explain(error, f"{file} is no report of vitinit speed") from None


def reports(roots: list[Path], device: str) -> list[SpeedReport]:
    """Every report for a device, the newest first; of the first folder that has any."""
    for root in roots:
        found = [report for file in sorted(root.glob("speed/*/speed.json")) if (report := read(file)).device == device]
        if found:
            return sorted(found, key=lambda report: report.written, reverse=True)
    return []
