"""Method `dct`: one attention matrix is the discrete cosine transform."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register


@register
class Dct(Initializer):
    """DCT initialisation (arXiv 2405.13901, IJCAI-ECAI 2026): one of W_q, W_k and W_v is the orthonormal DCT-II.

    Row k is frequency k of the input channels, so that head h has frequencies h d to (h + 1) d of the D (d features of
    a head, D the width). It is trained like any weight; all else keeps its base, biases too.

    Trap. In the Swin code released with the paper, the start is overwritten by the model's own initialisation.
    """

    name = "dct"
    sets = ("query", "key", "value")
    deterministic = True

    matrix: Literal["query", "key", "value"] = "key"
    """The paper sets one of them and has results for each; its best are mostly those of the key."""

    def check(self, model: nn.Module) -> None:
        """Refuse matrices that are not square, and normalised queries and keys where it sets one of them."""
        scored = self.matrix != "value"
        for layer in self.attention_of(model, sized_by_keys=scored, plain_logits=scored):
            rows, width = layer.value_DD.shape
            if rows != width:
                raise VitinitError(f"method 'dct' needs square matrices, and {layer.name} has {rows} x {width}")

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Overwrite W_q, W_k or W_v of every attention layer."""
        for layer in attention_layers(model):
            weights = {"query": layer.query_HdD, "key": layer.key_HdD, "value": layer.value_DD}
            weight = weights[self.matrix]
            weight.copy_(dct(weight.shape[-1]).view(weight.shape))


def dct(width: int) -> Tensor:
    """The orthonormal DCT-II, D x D: `s_k cos(pi (2 r + 1) k / (2 D))` in row k and column r."""
    place_D = torch.arange(width, dtype=torch.float64)
    matrix_DD = math.sqrt(2 / width) * torch.cos(math.pi / (2 * width) * torch.outer(place_D, 2 * place_D + 1))
    matrix_DD[0] = math.sqrt(1 / width)
    return matrix_DD.float()
