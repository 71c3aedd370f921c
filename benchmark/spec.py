"""RunSpec: one run as a value. Everything that can change a number is in it; its hash is the run's identity.

This module imports no torch, so that `analysis` can read records on a login node.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

SCHEMA_VERSION: Literal[1] = 1
"""Raised whenever a default or a meaning changes, so that old records are never taken for new ones."""

Fraction = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]


class Frozen(BaseModel):
    """Immutable, strict about unknown fields, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DatasetSpec(Frozen):
    """Which images. `train_size` takes a stratified subset of the training split, the same one at every seed."""

    name: str
    path: str | None = None
    """Root of a `folder` dataset; no other dataset has one."""
    train_size: PositiveInt | None = None

    @model_validator(mode="after")
    def _path_belongs_to_folder(self) -> DatasetSpec:
        if (self.name == "folder") != (self.path is not None):
            raise ValueError("the dataset 'folder' needs a path, no other dataset takes one; write folder:PATH")
        return self

    @property
    def label(self) -> str:
        """Name for tables, with the subset size where there is one."""
        name = f"folder:{self.path}" if self.path else self.name
        return name if self.train_size is None else f"{name}[{self.train_size}]"


class ModelSpec(Frozen):
    """A timm VisionTransformer (`vit`) or ConViT (`convit`)."""

    arch: Literal["vit", "convit"] = "vit"
    image_size: PositiveInt
    patch_size: PositiveInt
    width: PositiveInt
    depth: PositiveInt
    heads: PositiveInt
    mlp_ratio: PositiveFloat = 4.0
    qkv_bias: bool = True
    position: Literal["sincos", "learned"] = "sincos"
    pool: Literal["avg", "token"] = "avg"
    drop_rate: Rate = 0.0
    drop_path_rate: Rate = 0.0
    gpsa_layers: PositiveInt | None = None
    """ConViT only: how many blocks, counted from the input, have gated positional self-attention."""

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size {self.image_size} is not divisible by patch_size {self.patch_size}")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        if self.position == "sincos" and self.width % 4:
            raise ValueError(f"position 'sincos' needs a width divisible by 4, not {self.width}")
        if self.arch == "convit":
            # timm joins the class token to the tokens before the first block after the GPSA ones: there must be one
            if self.gpsa_layers is None or self.gpsa_layers >= self.depth:
                raise ValueError(f"convit needs gpsa_layers from 1 to one less than its depth {self.depth}")
            if (self.position, self.pool) != ("learned", "token"):
                raise ValueError("convit has position 'learned' and pool 'token' (timm's architecture)")
        elif self.gpsa_layers is not None:
            raise ValueError("gpsa_layers is a field of arch 'convit' only")
        return self

    @property
    def grid(self) -> int:
        """Side of the (square) token grid."""
        return self.image_size // self.patch_size


class InitializerSpec(Frozen):
    """An initialiser by name with its parameters; `benchmark.grid.resolve` checks them and fills in the defaults."""

    # Otherwise pydantic writes a NaN parameter as null, and two different runs would have one identity.
    model_config = ConfigDict(ser_json_inf_nan="constants")

    name: str
    params: dict[str, Any] = Field(default_factory=dict)


class Recipe(Frozen):
    """Optimiser, schedule, augmentation. AdamW with cosine decay and linear warm-up, always."""

    name: str
    epochs: PositiveInt
    batch_size: PositiveInt
    lr: PositiveFloat
    min_lr: Annotated[float, Field(ge=0)] = 0.0
    warmup_epochs: Annotated[int, Field(ge=0)] = 0
    warmup_lr: Annotated[float, Field(ge=0)] = 0.0
    schedule_per: Literal["epoch", "step"] = "epoch"
    """The learning rate changes once an epoch (timm's default) or at every optimiser step."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    clip_grad: PositiveFloat | None = None
    label_smoothing: Rate = 0.0
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    hflip: Fraction = 0.0
    crop_padding: Annotated[int, Field(ge=0)] = 0
    """Zero-pad by this many pixels, then crop at random back to the image size."""
    rand_augment: str | None = None
    """timm's configuration string, for example `rand-m9-mstd0.5-inc1`."""

    @model_validator(mode="after")
    def _warmup_fits(self) -> Recipe:
        if self.warmup_epochs > self.epochs:
            raise ValueError(f"warmup_epochs {self.warmup_epochs} is more than epochs {self.epochs}")
        return self


class RunSpec(Frozen):
    """One run. Specs with the same `run_id` give the same numbers on one machine, device and number of threads."""

    dataset: DatasetSpec
    model: ModelSpec
    base: InitializerSpec
    method: InitializerSpec | None = None
    recipe: Recipe
    seed: Annotated[int, Field(ge=0, lt=2**63)]

    def canonical(self) -> str:
        """The JSON that is hashed: every field, sorted keys, no white space."""
        parts = (
            f'"base":{_sorted_json(self.base)}',
            f'"dataset":{_sorted_json(self.dataset)}',
            f'"method":{_sorted_json(self.method) if self.method else "null"}',
            f'"model":{_sorted_json(self.model)}',
            f'"recipe":{_sorted_json(self.recipe)}',
            f'"schema_version":{SCHEMA_VERSION}',
            f'"seed":{self.seed}',
        )
        return "{" + ",".join(parts) + "}"

    @property
    def run_id(self) -> str:
        """16 hex digits of the sha256 of `canonical()`."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()[:16]


def _sorted_json(part: Frozen) -> str:
    """One part of a spec as it is hashed."""
    return _with_sorted_keys(part.__pydantic_serializer__.to_json(part))  # model_dump_json in half its time


@lru_cache(maxsize=4096)
def _with_sorted_keys(text: bytes) -> str:
    # Thousands of records share a few datasets, models and recipes: sorting them anew would take most of the time.
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), allow_nan=False)
