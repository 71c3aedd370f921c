"""Models, built from their specs. Imports no torch before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.benchmark.models.family import BaseModelSpec, ModelSpec

if TYPE_CHECKING:
    from torch import nn


def build_model(spec: BaseModelSpec, classes: int, dense: bool = False, seed: int = 0) -> nn.Module:
    """The model with unspecified weights: an initialiser sets every parameter afterwards.

    Of a model by name the base leaves what no rule covers: that is as its library has it, drawn by the seed.

    With `dense` it predicts a class for every pixel (`benchmark/models/dense.py`), from the same parameters.

    Raises:
        VitinitError: the family cannot do that.
    """
    import torch

    from vitinit.benchmark.models.dense import predicting_pixels
    from vitinit.initializers.whole_model import BY_NAME

    if dense:
        spec.check_dense()
    with torch.random.fork_rng(devices=[]):  # timm draws while it builds; the global generator stays as it was
        if spec.by_name:
            torch.default_generator.manual_seed(seed)
        model = spec.build(classes)
        if spec.by_name:
            setattr(model, BY_NAME, True)
    if not dense:
        return model
    assert isinstance(spec, ModelSpec)  # no other is `dense`
    return predicting_pixels(model, spec)


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
