"""Models, built from their specs. Imports no torch before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmark.models.family import ModelSpec

if TYPE_CHECKING:
    from torch import nn


def build_model(spec: ModelSpec, classes: int, dense: bool = False) -> nn.Module:
    """The model with unspecified weights: an initialiser sets every parameter afterwards.

    With `dense` it predicts a class for every pixel (`benchmark/models/dense.py`), from the same parameters.

    Raises:
        VitinitError: the family cannot do that.
    """
    import torch

    from benchmark.models.dense import predicting_pixels

    if dense:
        spec.check_dense()
    with torch.random.fork_rng(devices=[]):  # timm draws while it builds; the global generator stays as it was
        model = spec.build(classes)
    return predicting_pixels(model, spec) if dense else model


def at_image_size(model: nn.Module, spec: ModelSpec, image_size: int) -> nn.Module:
    """The same classifier for images of another size, to be fine-tuned there: a copy, with another token grid.

    What is not trained stays so. What becomes of position embeddings is the family's: `resized_state`.

    Args:
        model: as `build_model` makes them, trained or not.
        spec: its own.
        image_size: pixels, divisible by the patch size.

    Raises:
        ValidationError: it is not.
        VitinitError: such a model is for images of one size.
    """
    import torch

    larger = type(spec).model_validate({**spec.model_dump(), "image_size": image_size})
    classes: Any = model.num_classes
    other = build_model(larger, classes)
    with torch.no_grad():
        other.load_state_dict(spec.resized_state(dict(model.state_dict()), larger))
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        theirs.requires_grad_(ours.requires_grad)
    return other.to(next(model.parameters()).device).train(model.training)


def parameter_count(model: nn.Module) -> int:
    """Number of trainable values."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
