"""Method `conditioned`: attention weights of condition number 1."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, Part, register
from vitinit.initializers.threads import one_thread


@register
class Conditioned(Initializer):
    """Conditioned initialisation (Saratchandran and Lucey, ICLR 2026, OpenReview cKNOCYPo2W), read at second hand.

    W_q and W_k of each head (d x D, d features of a head, D the width) are independent random matrices with orthonormal
    rows: the U V^T of a Gaussian matrix. W_v is a rectangular identity. W_proj, biases and all else keep their base.

    Traps. The paper's code is not released, and its words leave open which identity a head gets: `value` has both. The
    norm of a head's W_q is sqrt(d), two to four times that of a trunc normal of 0.02: `scale: base` tells size
    from conditioning.
    """

    name: ClassVar[str] = "conditioned"

    sets: ClassVar[tuple[Part, ...]] = ("query", "key", "value")

    value: Literal["same", "slices", "keep"] = "same"
    """`same`: every head reads the first d channels. `slices`: head h reads channels h d to (h + 1) d, so that W_v is
    the identity. `keep`: W_v keeps its base."""
    scale: Literal["unit", "base"] = "unit"
    """`base`: every head of W_q, W_k and W_v keeps the Frobenius norm of its base. Ours, a control."""

    def check(self, model: nn.Module) -> None:
        """Refuse normalised queries and keys, and slices where the heads have more features than there are channels."""
        for layer in self.attention_of(model, sized_by_keys=self.value != "keep", plain_logits=True):
            rows, width = layer.value_DD.shape
            if self.value == "slices" and rows > width:
                raise VitinitError(f"method 'conditioned': {layer.name} has {rows} features and no slices of {width}")

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Overwrite W_q and W_k, and unless it is kept W_v, of every attention layer."""
        for layer in attention_layers(model):
            heads, features, width = layer.query_HdD.shape
            for weight_HdD in (layer.query_HdD, layer.key_HdD):
                for weight_dD in weight_HdD:
                    self._set(weight_dD, semi_orthogonal(features, width, generator))
            for head, weight_dD in enumerate(layer.value_DD.unflatten(0, (heads, -1))):
                first = head * features if self.value == "slices" else 0
                if self.value != "keep":
                    self._set(weight_dD, torch.eye(first + features, width)[first:])

    def _set(self, weight_dD: Tensor, to_dD: Tensor) -> None:
        size = weight_dD.norm().cpu() / to_dD.norm() if self.scale == "base" else 1.0
        weight_dD.copy_(size * to_dD)


def semi_orthogonal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Uniformly distributed among the matrices with orthonormal rows, or columns where these are fewer."""
    drawn = torch.empty(rows, columns).normal_(generator=generator)
    with one_thread():
        u, _, vh = torch.linalg.svd(drawn.double(), full_matrices=False)
        return (u @ vh).float()
