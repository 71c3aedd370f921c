"""Measuring that leaves a model as it was, whatever is done to its tensors meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from vitinit.initializers.apply import all_or_nothing


class _Measured(Exception):
    """Ends `all_or_nothing`, which then puts everything back."""


@contextmanager
def undone(model: nn.Module) -> Iterator[None]:
    """Undo everything within: parameters, buffers, gradients, modes, attributes, hooks, global random state.

    Within, tensors of a float type are float32 copies and have no gradients; gradients can be computed.

    Raises:
        VitinitError: parameters that cannot be written to; says what to do.
    """
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()] if _is_model(model) else []
    try:
        with suppress(_Measured), all_or_nothing(model):
            for parameter, _ in gradients:
                parameter.grad = None
            with torch.enable_grad():
                yield
            raise _Measured
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _is_model(model: object) -> bool:
    return isinstance(model, nn.Module)
