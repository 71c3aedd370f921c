"""Models, built from their specs. Imports no torch before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit.benchmark.models.family import ModelSpec

if TYPE_CHECKING:
    from torch import nn


def build_model(spec: ModelSpec, classes: int, dense: bool = False) -> nn.Module:
    """The model with unspecified weights: an initialiser sets every parameter afterwards.

    With `dense` it predicts a class for every pixel (`benchmark/models/dense.py`), from the same parameters.

    Raises:
        VitinitError: the family cannot do that.
    """
    import torch

    from vitinit.benchmark.models.dense import predicting_pixels

    if dense:
        spec.check_dense()
    with torch.random.fork_rng(devices=[]):  # timm draws while it builds; the global generator stays as it was
        model = spec.build(classes)
    return predicting_pixels(model, spec) if dense else model


def parameter_count(model: nn.Module) -> int:
    """Number of trainable values."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
