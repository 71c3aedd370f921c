"""RunSpec: one run as a value. Everything that can change a number is in it; its hash is the run's identity.

This module imports no torch, so that `analysis` can read records on a login node.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from vitinit.benchmark import identity
from vitinit.benchmark.fields import (
    Count,
    Fraction,
    Frozen,
    NotNegative,
    Positive,
    Rate,
    Seed,
    Share,
    WholeNumber,
    finite,
    named,
    once,
)
from vitinit.benchmark.models.registry import BaseModelSpec, family_of
from vitinit.benchmark.schedules import WSD, AnySchedule, Cosine
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import short_hash

SCHEMA_VERSION: Literal[1] = 1
"""Raised whenever a default or a meaning changes, so that old records are never taken for new ones."""


def _sections_once(config: str) -> str:
    once(re.findall("-([a-z]+)", config), "section")
    return config


RandAugmentConfig = Annotated[
    str,
    Field(pattern=r"^rand(-(m\d\d?|n\d\d?|(p|mstd)\d+(\.\d+)?|mmax\d\d?|inc[01]))*$"),
    AfterValidator(_sections_once),
]
"""Configuration string of timm's RandAugment, as rand-m9-mstd0.5-inc1: only sections that timm parses, with
integers below 100. It ignores others silently."""

WITH_PATH = {"folder": "PATH", "hf": "NAME"}
"""Datasets that are named with a path, as folder:PATH."""


class DatasetSpec(Frozen):
    """Images for training, and images for accuracy."""

    name: str
    path: Annotated[str, Field(min_length=1)] | None = None
    """Root of a `folder` dataset, or name of one of `hf`; no other dataset has one."""
    home: str | None = None
    """Folder, that of the grid, in which a relative `path` begins; in no run_id. None: the current one."""
    train_size: Count | None = None
    """Trains on so many images of the training split, the classes in proportion. None: on all but `val_size`."""
    val_size: Count | None = None
    """Takes so many images from the training split for validation, the classes in proportion: the same ones at every
    seed and `train_size`, and none of them is trained on."""
    train_draw: Literal["fixed", "seed"] = "fixed"
    """`fixed`: one subset for all seeds. `seed`: a new one at each, the same for every initialiser, so that a spread
    over seeds holds that of the images too."""
    evaluate_on: Literal["test", "val"] = "test"
    """Split for accuracy: `val` is for choosing, and no test image is used then."""

    @model_validator(mode="after")
    def _consistent(self) -> DatasetSpec:
        if (self.name in WITH_PATH) != (self.path is not None) or (self.home and not self.path):
            raise ValueError("the datasets 'folder' and 'hf' need a path, no other takes one: folder:PATH, hf:NAME")
        f"{self.home}{self.path}".encode()  # a record holds both: an error of its own where they are not UTF-8
        if self.evaluate_on == "val" and self.val_size is None:
            raise ValueError("evaluate_on 'val' needs val_size, the number of images taken from the training split")
        if self.train_draw == "seed" and self.train_size is None:
            raise ValueError("train_draw 'seed' needs train_size: there is nothing to draw where all images are taken")
        return self

    @model_serializer(mode="wrap")
    def _as_recorded(self, fields_of: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in fields_of(self).items() if name != "home" or value}

    @property
    def root(self) -> Path:
        """Folder of a `folder` dataset."""
        return Path(self.home or "", str(self.path)).absolute()

    @property
    def label(self) -> str:
        """Name for tables: what tells two settings of one dataset apart, so that no cell mixes them.

        For example `cifar10[10000, redrawn]`, or `cifar10[8000, val 2000], validation` for accuracy on the 2,000.
        """
        name = f"{self.name}:{self.path}" if self.path else self.name
        settings = [str(self.train_size)] if self.train_size else []
        settings += [f"val {self.val_size}"] if self.val_size else []
        settings += ["redrawn"] if self.train_draw == "seed" else []
        label = f"{name}[{', '.join(settings)}]" if settings else name
        return f"{label}, validation" if self.evaluate_on == "val" else label

    @property
    def at_any_size(self) -> str:
        """The label without the number of training images."""
        return self.model_copy(update={"train_size": None}).label


class NamedSpec(Frozen):
    """Something by name with its parameters."""

    name: str
    params: Annotated[dict[str, Any], AfterValidator(finite)] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _as_in_a_grid(cls, value: Any) -> Any:
        """`lion` and `{name: sgd, momentum: 0.9}` are short for name and params."""
        value = named(value)
        if isinstance(value, dict) and "params" not in value:
            return {"name": value.pop("name"), "params": value}
        return value


class InitializerSpec(NamedSpec):
    """An initialiser; `benchmark.grids.grid` checks its parameters, fills in defaults."""

    def names(self) -> list[str]:
        """All initialisers that it names: its own, and those inside it where it wraps another (`of`)."""
        of = self.params.get("of")
        return [self.name, *(InitializerSpec.model_validate(of).names() if of else [])]

    @field_validator("params")
    @classmethod
    def _current(cls, params: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if of := params.get("of"):
            InitializerSpec.model_validate(of)
        return identity.current(f"initializer.{info.data.get('name')}", params)


class OptimizerSpec(NamedSpec):
    """An optimiser, with the parameters that a grid gives; `benchmark.optimizers.registry` builds it.

    Without a parameter, `adamw` is torch's AdamW with the recipe's `betas` and `eps`.
    """


class AugmentationSpec(NamedSpec):
    """An augmentation; `benchmark.augmentations.registry` checks its parameters, fills in defaults."""


ADAMW = OptimizerSpec(name="adamw")


class Recipe(Frozen):
    """Optimiser, schedule, augmentation."""

    name: str
    epochs: Count
    """Passes over the training images, those of the warm-up among them."""
    batch_size: Count
    """Images of one optimiser step, over all processes."""
    lr: Positive
    """Highest learning rate."""
    min_lr: NotNegative = 0.0
    """Learning rate at the end of the schedule; `step` and `constant` have none."""
    warmup_epochs: WholeNumber = 0
    """Epochs of linear warm-up, from `warmup_lr` to `lr`."""
    warmup_lr: NotNegative = 0.0
    """Learning rate at the beginning of the warm-up."""
    schedule: AnySchedule = Cosine()
    """One of `benchmark.schedules` by its name, or a mapping of its name and fields; after a linear warm-up."""
    schedule_per: Literal["epoch", "step"] = "epoch"
    """The learning rate changes once an epoch (timm's default) or at every optimiser step."""
    weight_decay: NotNegative = 0.0
    """Not of biases, norms, class token and positions."""
    optimizer: OptimizerSpec = ADAMW
    """One of `vitinit list optimizers` by its name, as `lion`, or a mapping of its name and parameters."""
    layer_decay: Share | None = None
    """Learning rate of a layer over that of the next one (timm's parameter groups). None: all have the same."""
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    """Only read by AdamW; another optimiser has those among its own parameters."""
    eps: Positive = 1e-8
    """Only read by AdamW, as `betas`."""
    clip_grad: Positive | None = None
    """Largest norm of the gradient over all parameters. None: off."""
    ema: Rate | None = None
    """Decay, a step, of a moving average of the weights (timm's ModelEmaV3), which is evaluated too. None: off."""
    label_smoothing: Rate = 0.0
    """Share of each label that is spread over all classes."""
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    """fp32 is IEEE single precision on every device, in convolutions too. tf32, on GPUs only, rounds the inputs of
    matrix products and convolutions to 10 bits of mantissa. bf16 and fp16 are torch's autocast. Initialisers compute
    in fp32."""
    residuals: Literal["fp32", "half"] = "fp32"
    """Type of the residual stream and of norms under bf16 or fp16: fp32, as autocast has it, or half: that type too."""
    hflip: Fraction = 0.0
    """Probability of a horizontal flip."""
    crop_padding: WholeNumber = 0
    """Zero-pad by this many pixels, then crop at random back to the image size."""
    rand_augment: RandAugmentConfig | None = None
    """timm's configuration string, for example `rand-m9-mstd0.5-inc1`."""
    augment: tuple[AugmentationSpec, ...] = ()
    """Augmentations after those fields and before mixing: of `vitinit list augmentations`, by name, or mappings of
    name and parameters."""
    mixup: NotNegative = 0.0
    """Alpha of mixup's Beta(alpha, alpha); 0 is off. With `cutmix` too, a fair coin chooses one of them each time."""
    cutmix: NotNegative = 0.0
    """Alpha of cutmix's Beta(alpha, alpha); 0 is off."""
    mix_images: Annotated[Count, Field(ge=2)] | None = None
    """Mixup and cutmix happen among so many neighbours of a batch (timm's: those of one GPU). None: the whole batch."""
    random_erasing: Fraction = 0.0
    """Probability that a rectangle of an image becomes noise: timm's mode `pixel`, with its sizes and shapes."""
    crop_scale: tuple[Share, Share] | None = None
    """Random resized crop: least and largest share of the image's area. None is the crop of the test images."""
    crop_ratio: tuple[Positive, Positive] = (3 / 4, 4 / 3)
    """Random resized crop: least and largest width over height."""
    crop_pct: Share = 1.0
    """Test images: the side of the central crop over the shorter side of the image."""
    statistics: Literal["dataset", "imagenet"] = "dataset"
    """Mean and standard deviation that images are normalised with: the dataset's own, or those of ImageNet."""
    evaluate_every: Count = 1
    """Epochs from one look at the test images, and at the probes, to the next; there always is one after the last."""

    @model_validator(mode="before")
    @classmethod
    def _current(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        # JSON has no tuples: after this, pydantic takes the fields for Python's
        return {
            name: tuple(field) if isinstance(field, list) else field
            for name, field in identity.current("recipe", value, cls.model_fields).items()
        }

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        for name in ("min_lr", "warmup_lr"):
            if getattr(self, name) > self.lr:
                raise ValueError(f"{name} {getattr(self, name):g} is more than lr {self.lr:g}")
        if self.warmup_epochs > self.epochs:
            raise ValueError(f"warmup_epochs {self.warmup_epochs} is more than epochs {self.epochs}")
        if isinstance(self.schedule, WSD) and self.warmup_epochs + self.schedule.decaying(self.epochs) > self.epochs:
            raise ValueError(
                f"schedule wsd decays in {self.schedule.decaying(self.epochs)} of {self.epochs} epochs, and "
                f"{self.warmup_epochs} are warm-up: give it more epochs, or a smaller cooldown"
            )
        for name in ("crop_scale", "crop_ratio"):
            if (limits := getattr(self, name)) and limits[0] > limits[1]:
                raise ValueError(f"{name} is the least and the largest value, not {list(limits)}")
        if self.crop_ratio != Recipe.model_fields["crop_ratio"].default and not self.crop_scale:
            raise ValueError("crop_ratio is the shape of a random resized crop, and crop_scale is off")
        for name in ("betas", "eps"):
            if self.optimizer != ADAMW and getattr(self, name) != Recipe.model_fields[name].default:
                raise ValueError(
                    f"{name} is of the recipe's AdamW; write optimizer: {{name: {self.optimizer.name}, {name}: ...}} "
                    f"where it has one, and {name}: {json.dumps(Recipe.model_fields[name].default)} in the recipe"
                )
        if self.residuals == "half" and self.precision not in ("bf16", "fp16"):
            raise ValueError(f"residuals half needs precision bf16 or fp16, and it is {self.precision}")
        if self.mix_images and not self.mixes:
            raise ValueError("mix_images says among how many images mixup and cutmix happen, and both are off")
        if self.batch_size % self.mix_unit:
            raise ValueError(f"batch_size {self.batch_size} is not divisible by mix_images {self.mix_images}")
        return self

    @property
    def evaluated_epochs(self) -> list[int]:
        """After which epochs the test images are looked at; they count from 1."""
        return [*range(self.evaluate_every, self.epochs, self.evaluate_every), self.epochs]

    @property
    def crops(self) -> bool:
        """True if images are cropped in their own size, and so decoded when they are used."""
        return bool(self.crop_scale or self.crop_pct != 1)

    @property
    def mixes(self) -> bool:
        """True if images are mixed, which makes their labels shares of classes."""
        return bool(self.mixup or self.cutmix)

    def check_masks(self) -> None:
        """Refuse what masks do not follow: they are padded, cropped and flipped with their images, no more.

        Raises:
            VitinitError: it names what is asked for.
        """
        names = "rand_augment", "augment", "mixup", "cutmix", "random_erasing", "crop_scale", "crop_pct"
        if beyond := [name for name in names if getattr(self, name) != Recipe.model_fields[name].default]:
            raise VitinitError(
                f"recipe {self.name!r}: {', '.join(beyond)} would change images and leave their masks as they are; a "
                "dataset with masks goes with hflip and crop_padding"
            )

    @property
    def mix_unit(self) -> int:
        """Number of neighbours in a batch that need one another: 1 where nothing is mixed."""
        return (self.mix_images or self.batch_size) if self.mixes else 1


def model_spec(model: Any) -> BaseModelSpec:
    """Return a spec as it is; from fields, as a record holds them, that of the family that they name."""
    if isinstance(model, BaseModelSpec):
        return model
    if not isinstance(model, dict):
        raise ValueError("should be a mapping of fields")
    return family_of(model).model_validate(model)


AnyModel = Annotated[SerializeAsAny[BaseModelSpec], PlainValidator(model_spec)]
"""The spec of a model of any family."""


class RunSpec(Frozen):
    """One run. Specs with the same `run_id` give the same numbers on one machine, device and number of threads.

    On a GPU that holds with `--deterministic` only: without it sums are rounded in another order each time.
    """

    dataset: DatasetSpec
    model: AnyModel
    base: InitializerSpec
    method: InitializerSpec | None = None
    recipe: Recipe
    seed: Seed

    def canonical(self) -> str:
        """The JSON that is hashed: sorted keys, no white space, fields as `identity.yaml` has them."""
        run = {"schema_version": SCHEMA_VERSION, **self.model_dump(mode="json")}
        run["dataset"].pop("home", None)
        for part, owner in {"dataset": "dataset", "recipe": "recipe", "model": f"model.{self.model.arch}"}.items():
            run[part] = identity.hashed(owner, run[part])
        for initializer in filter(None, (run["base"], run["method"])):
            initializer["params"] = identity.hashed(f"initializer.{initializer['name']}", initializer["params"])
        return json.dumps(run, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def run_id(self) -> str:
        """16 hex digits of the sha256 of `canonical()`."""
        return short_hash(self.canonical().encode())
