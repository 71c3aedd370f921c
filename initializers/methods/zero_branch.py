"""Method `zero_branch`: every block starts as the identity."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

import torch
from torch import nn

from vitinit.initializers.attention import attention_layers, evaluated
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, Part, register


@register
class ZeroBranch(Initializer):
    """W_proj and the last Linear of each MLP are 0, biases too, so that both branches of a block add nothing at first.
    The idea of ReZero (arXiv 2003.04887) and SkipInit (arXiv 2002.10444), without their extra scalar.

    At the first step these two matrices alone have a gradient. The control for every claim about signals in deep
    networks.

    Traps. In a post-norm block a norm follows the sum, and it is refused.
    """

    name: ClassVar[str] = "zero_branch"
    sets: ClassVar[tuple[Part, ...]] = ("proj", "proj_bias", "mlp_out")
    deterministic: ClassVar[bool] = True

    def check(self, model: nn.Module) -> None:
        """Refuse attention without an MLP in its block."""
        self.blocks_of(model)

    def patterned(self, model: nn.Module) -> bool:
        """Zeros have none."""
        return False

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Clear the last Linear of both branches of every block."""
        for layer in attention_layers(model):
            last = list(layer.mlp.values())[-1]
            for part in (layer.proj_DD, layer.bias(layer.kind.proj), last.weight, last.bias):
                if part is not None:
                    part.zero_()
        for layer in attention_layers(model):
            if layer.block is not None and not _is_identity(layer.block, layer.query_HdD.shape[-1]):
                raise VitinitError(
                    f"method 'zero_branch': the block of {layer.name!r} ({type(layer.block).__name__}) changes tokens "
                    "although both branches end in zeros, as one with a norm behind the sum: choose pre-norm blocks"
                )


def _is_identity(block: nn.Module, width: int) -> bool:
    """Return True for a block that returns random tokens unchanged, and for one that does not take tokens alone."""
    tokens = torch.randn(1, 16, width, generator=torch.Generator().manual_seed(0)).to(next(block.parameters()))
    with evaluated(block), suppress(Exception):  # a block that takes more, or another shape, raises anything
        given = block(tokens)
        return torch.allclose(given[0] if isinstance(given, tuple) else given, tokens, atol=1e-5)
    return True
