"""Methods that set W_q, W_k and W_v one matrix at a time: `zero_query`, `critical_scale`, `conditioned`, `dct`."""

import math
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Generator, Tensor, nn

from vitinit.initializers.attention import AttentionLayer, attention_layers, seen_grids
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.whole_model import draw_normal_, singular_vectors


@register
class ZeroQuery(Initializer):
    """W_q and its bias are 0: every query attends to all keys alike, and W_q learns from the first step on.

    One of the rules of muP (code: microsoft/mup), alone. Its others, learning rates by width above all, are no matter
    of initialisation.

    Trap. What is added to the logits stays: relative position biases, and ConViT's gated positions.
    """

    name = "zero_query"
    sets = ("query", "query_bias")
    plain_logits = True
    """Normalised queries are no zeros where W_q nearly is: its gradient would be huge."""
    deterministic = True

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Clear W_q and its bias in every attention layer."""
        for layer in attention_layers(model):
            layer.query_HdD.zero_()
            bias = layer.bias(layer.paths.query)
            if bias is not None:
                bias.zero_()


@register
class CriticalScale(Initializer):
    """W_q and W_k are normal, so that logits have the standard deviation `beta` sqrt(ln N) for N keys
    (arXiv 2505.24333).

    Tokens are taken as LayerNorm gives them: D features of variance 1, independent. With entries of variance s^2,
    logits q k / sqrt(d) then have the standard deviation s^2 D, so s^2 = `beta` sqrt(ln N) / D. Above
    `beta` = sqrt(2 / (1 - rho)), where rho is the correlation between tokens, each query attends to few keys only
    (code: aGiorlandino/ICLR-Signal-Propagation-Transformers). That bound is at least sqrt(2).

    Traps. N counts patches, or those of a window where attention is in windows. Biases of W_q and W_k keep their
    base. The head's width d drops out only where attention divides by sqrt(d).
    """

    name = "critical_scale"
    sets = ("query", "key")
    plain_logits = True

    beta: PositiveFloat = 1.0
    """Standard deviation of the logits in units of sqrt(ln N)."""

    def check(self, model: nn.Module) -> None:
        """Refuse normalised queries and keys, whose logits do not depend on W_q and W_k's size, and unknown grids."""
        super().check(model)
        seen_grids(model)

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Draw W_q and W_k of every attention layer."""
        for layer, grid in zip(attention_layers(model), seen_grids(model), strict=True):
            std = (self.beta * math.log(math.prod(grid)) ** 0.5 / layer.query_HdD.shape[-1]) ** 0.5
            for weight in (layer.query_HdD, layer.key_HdD):
                draw_normal_(weight, std, generator)


@register
class Conditioned(Initializer):
    """Conditioned initialisation (Saratchandran and Lucey, ICLR 2026, OpenReview cKNOCYPo2W), read at second hand.

    W_q and W_k of each head (d x D, d features of a head, D the width) are independent random matrices with orthonormal
    rows: the U V^T of a Gaussian matrix. W_v is a rectangular identity. W_proj, biases and all else keep their base.

    Traps. The paper's code is not released, and its words leave open which identity a head gets: here every head reads
    the first d channels. The norm of a head's W_q is sqrt(d), two to four times that of a trunc normal of 0.02.
    """

    name = "conditioned"
    sets = ("query", "key", "value")
    plain_logits = True

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Overwrite W_q and W_k, and W_v of every attention layer."""
        for layer in attention_layers(model):
            heads, features, width = layer.query_HdD.shape
            for weight_HdD in (layer.query_HdD, layer.key_HdD):
                for weight_dD in weight_HdD:
                    u, vh = singular_vectors(features, width, generator)
                    weight_dD.copy_(u @ vh)
            layer.value_DD.copy_(torch.eye(len(layer.value_DD) // heads, width).repeat(heads, 1))


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
        for layer in self.attention_of(model, plain_logits=self.matrix != "value"):
            rows, width = self._weight_DD(layer).shape
            if rows != width:
                raise VitinitError(f"method 'dct' needs square matrices, and {layer.name} has {rows} x {width}")

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> None:
        """Overwrite W_q, W_k or W_v of every attention layer."""
        for layer in attention_layers(model):
            weight_DD = self._weight_DD(layer)
            width = len(weight_DD)
            place_D = torch.arange(width, dtype=torch.float64)  # s_k cos(pi (2 r + 1) k / (2 D)) in row k and column r
            dct_DD = math.sqrt(2 / width) * torch.cos(math.pi / (2 * width) * torch.outer(place_D, 2 * place_D + 1))
            dct_DD[0] = math.sqrt(1 / width)
            weight_DD.copy_(dct_DD.float())

    def _weight_DD(self, layer: AttentionLayer) -> Tensor:
        return layer.weight(getattr(layer.paths, self.matrix))
