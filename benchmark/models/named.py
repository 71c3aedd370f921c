"""Models that are somebody's: named, with the arguments of their constructor, and counted by building them.

Imports no torch before it is needed: a spec that a record holds is read without it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, JsonValue

from vitinit.benchmark import signatures
from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.initializers.errors import VitinitError, cause
from vitinit.initializers.foreign import contained

if TYPE_CHECKING:
    from torch import nn

SIZES = ("img_size", "image_size")
"""Names that libraries have for the side of the images."""
WITHOUT = ("num_classes", "in_chans", *SIZES)
"""Arguments that follow from the dataset and from `image_size`."""
CLASSES = 10
"""So many are assumed where the dataset does not matter."""
IMAGES = 2
"""A BatchNorm in training wants more than one."""


class Counts(Frozen):
    """Parameters and operations of a model, counted by building it."""

    parameters: int
    operations: float
    """Operations of a forward pass of one image: two for a multiplication and its addition."""
    batch_norm: bool


class NamedModel(BaseModelSpec):
    """A model of which a grid gives the name, the size of the images and arguments; no family by itself.

    Bases and methods apply as far as the adapters know its modules (`initializers/adapters/`).
    """

    kind: ClassVar[str] = "named"
    by_name: ClassVar[bool] = True
    key: ClassVar[str]
    """Field that holds the name, and that a grid gives in place of `arch`."""

    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the constructor."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def called(self) -> str:
        """Its name, with its kind: `timm resnet18`."""
        return f"{self.key} {getattr(self, self.key)}"

    @property
    @abstractmethod
    def constructor(self) -> Callable[..., nn.Module]:
        """The class or function whose signature `args` follow."""

    def checked_args(self) -> dict[str, Any]:
        """Return `args` with the types of the constructor.

        Raises:
            VitinitError: an unknown argument, or a value of another type.
        """
        return signatures.checked(self.constructor, self.args, f"model {self.called}", WITHOUT)

    def resolved(self) -> NamedModel:
        """Check arguments by the constructor's signature, and by building the model without memory for its values.

        Raises:
            VitinitError: it cannot be built, or does not give one score a class.
        """
        with _blamed(self):
            spec = self.model_copy(update={"args": self.checked_args()})
        count(spec, CLASSES)
        return spec

    @property
    def size(self) -> int:
        """All parameters, those of the head for ten classes too."""
        return count(self, CLASSES).parameters

    def forward_operations(self, classes: int) -> float:
        """Counted by torch on shapes without values."""
        return count(self, classes).operations

    @property
    def batch_norm(self) -> bool:
        """Return True if it has a BatchNorm."""
        return count(self, CLASSES).batch_norm

    @property
    def shape(self) -> str:
        """The model, and the size of its images."""
        return f"{self.describe()}, {self.image_size} px"

    def describe(self) -> str:
        """Its name and arguments."""
        return ", ".join([self.called, *(f"{name} {value}" for name, value in self.args.items())])


def with_args(family: type[NamedModel], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a grid as a record has them: what the spec has no field for is an argument.

    Raises:
        VitinitError: one argument, or the size of the images, is there twice.
    """
    own = {name: value for name, value in fields.items() if name in family.model_fields}
    where, nested = f"model {family.key} {own.get(family.key)}", own.get("args") or {}
    flat = {name: value for name, value in fields.items() if name not in (*family.model_fields, *SIZES)}
    if not isinstance(nested, Mapping):
        raise VitinitError(f"{where}: args must be a mapping")
    if twice := sorted(flat.keys() & nested.keys()):
        raise VitinitError(f"{where}: {', '.join(twice)}: there twice")
    sizes = [fields[name] for name in SIZES if name in fields]
    if len(sizes) > 1:
        raise VitinitError(f"{where}: img_size and image_size are one thing; give one")
    size = {"image_size": sizes[0]} if sizes else {}
    return {**own, "arch": family.name(), "args": {**nested, **flat}, **size}


def count(spec: NamedModel, classes: int) -> Counts:
    """Return what building a model tells, for so many classes.

    Raises:
        VitinitError: it cannot be built, does not take its images, or does not give one score a class.
    """
    return _count(spec.model_dump_json(), type(spec), classes)


@cache
def _count(content: str, of: type[NamedModel], classes: int) -> Counts:
    spec = of.model_validate_json(content)
    with _blamed(spec):
        return _counted(spec, classes)


@contextmanager
def _blamed(spec: NamedModel) -> Iterator[None]:
    """Say whatever somebody's code raises in one line that names the model."""
    try:
        with contained(f"model {spec.called}"):
            yield
    except VitinitError:
        raise
    except Exception as error:
        raise VitinitError(f"model {spec.called}: {cause(error)}") from error


def _counted(spec: NamedModel, classes: int) -> Counts:
    from torch import nn

    from vitinit.benchmark.models.build import build_model, parameter_count, without_values

    model = without_values(spec, classes)
    parameters = parameter_count(model)
    batch_norm = any(isinstance(one, nn.modules.batchnorm._BatchNorm) for one in model.modules())
    try:
        operations = _operations(model, spec, classes, "meta")
    except VitinitError:
        raise
    except Exception:  # of code that reads values, which shapes do not have
        operations = _operations(build_model(spec, classes), spec, classes, "cpu")
    return Counts(parameters=parameters, operations=operations, batch_norm=batch_norm)


def _operations(model: nn.Module, spec: NamedModel, classes: int, device: str) -> float:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    model.requires_grad_(False)
    images_BCHW = torch.zeros(IMAGES, 3, spec.image_size, spec.image_size, device=device)
    for training in (True, False):
        # attention as plain products: some versions of torch do not count those of the fused kernels
        plain, drawn = sdpa_kernel(SDPBackend.MATH), torch.random.fork_rng(devices=[])
        with plain, drawn, torch.no_grad(), FlopCounterMode(display=False) as counter:
            scores = model.train(training)(images_BCHW)
        shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        if shape != (IMAGES, classes):
            when = "in training" if training else "in evaluation"
            raise VitinitError(
                f"model {spec.called} gives {shape} {when} for {IMAGES} images of {spec.image_size} px and {classes} "
                "classes; a classifier gives one score for each image and class"
            )
    return counter.get_total_flops() / IMAGES
