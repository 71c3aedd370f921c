"""Models, built from their specs, and what building tells. Imports no torch before it is needed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from vitinit.benchmark.models.family import BaseModelSpec, ModelSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from torch import nn

CLASSES = 10
"""Number of classes that is assumed where the dataset does not matter."""
IMAGES = 2
"""A BatchNorm in training wants more than one."""


def build_model(spec: BaseModelSpec, classes: int, dense: bool = False, seed: int = 0) -> nn.Module:
    """The model with unspecified weights: an initialiser sets every parameter afterwards.

    Of a model by name the base leaves what no rule covers: that is as its library has it, drawn by the seed.

    With `dense` it predicts a class for every pixel (`benchmark/models/dense.py`), from the same parameters: for
    families that are `dense`.
    """
    import torch

    from vitinit.benchmark.models.dense import predicting_pixels
    from vitinit.initializers.whole_model import BY_NAME

    with torch.random.fork_rng(devices=[]):  # timm draws while it builds; the global generator stays as it was
        if spec.by_name:
            torch.default_generator.manual_seed(seed)
        model = spec.build(classes)
        if spec.by_name:
            setattr(model, BY_NAME, True)
    return predicting_pixels(model, cast(ModelSpec, spec)) if dense else model


def without_values(spec: BaseModelSpec, classes: int) -> nn.Module:
    """The model on the device `meta`: shapes without values."""
    import torch

    try:
        with torch.device("meta"):
            return build_model(spec, classes)
    except Exception:
        if not spec.by_name:
            raise
        return build_model(spec, classes).to("meta")  # of code that reads values as it builds


def parameter_count(model: nn.Module) -> int:
    """Number of trainable values."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


@cache
def has_batch_norm(spec: BaseModelSpec) -> bool:
    """Return True if a model has a BatchNorm: built for ten classes, it classifies.

    It has shapes without values where its code does not read them.

    Raises:
        VitinitError: it does not give one score for each image and class.
    """
    try:
        return _tried(spec, without_values(spec, CLASSES), "meta")
    except VitinitError:
        raise
    except Exception:  # of code that reads values, which shapes do not have
        return _tried(spec, build_model(spec, CLASSES), "cpu")


def _tried(spec: BaseModelSpec, model: nn.Module, device: str) -> bool:
    import torch

    images_BCHW = torch.zeros(IMAGES, 3, spec.image_size, spec.image_size, device=device)
    for training in (True, False):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            scores = model.train(training)(images_BCHW)
        shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        if shape != (IMAGES, CLASSES):
            raise VitinitError(
                f"gives {shape} {'in training' if training else 'in evaluation'} for {IMAGES} images "
                f"of {spec.image_size} px and {CLASSES} classes; a classifier gives one score for each image and class"
            )
    return any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules())
