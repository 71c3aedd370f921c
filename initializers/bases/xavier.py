"""Bases of Xavier uniform weights: what four published Vision Transformers start from."""

import math
from typing import ClassVar, Literal

from pydantic import PositiveFloat
from torch import Generator, Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import (
    Convolution,
    Place,
    WholeModel,
    draw_normal_,
    draw_trunc_normal_,
    draw_uniform_,
    pytorch_default_,
)

CUT = 0.87962566103423978
"""Standard deviation of a standard normal that is cut at -2 and 2."""


class Xavier(WholeModel):
    """Weights are U(+-sqrt(6 / (inputs + outputs))), those of convolutions as of Linears.

    With `head_std` the classifier is a trunc normal of this standard deviation, or 0.
    """

    own_head = True

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """Xavier uniform; the classifier by `head_std`."""
        head_std = getattr(self, "head_std", None)
        if place.role != "head" or head_std is None:
            draw_uniform_(weight_OI, math.sqrt(6 / sum(weight_OI.shape)), generator)
        elif head_std:
            draw_trunc_normal_(weight_OI, head_std, generator)
        else:
            weight_OI.zero_()


@register
class MocoV3(Xavier):
    """facebookresearch/moco-v3's Vision Transformer (`vits.py`).

    All weights, the patch embedding's too, are U(+-sqrt(6 / (inputs + outputs))), W_q, W_k and W_v each on its own.
    Biases are 0, the class token is N(0, 1e-6^2). Its position embedding is fixed; a learned one is N(0, 0.02^2)
    here.

    Trap. timm's `weight_init="moco"` leaves the patch embedding as PyTorch has it.
    """

    name = "moco_v3"
    own_head = False
    class_token_std = 1e-6


@register
class Mae(Xavier):
    """facebookresearch/mae's encoder (`models_mae.py`), and the head that it is fine-tuned with.

    All weights, the patch embedding's too, are U(+-sqrt(6 / (inputs + outputs))), biases 0, the class token N(0,
    0.02^2). The bias of the patch embedding stays as PyTorch has it. The head is a trunc normal of `head_std`. Its
    position embedding is fixed; a learned one is N(0, 0.02^2) here.

    Trap. The fused W_q, W_k and W_v count as one matrix, which makes them smaller by the square root of 2 than in JAX.
    """

    name = "mae"
    qkv: ClassVar = "fused"
    class_token_std = 0.02

    head_std: PositiveFloat = 2e-5

    def convolution(self, module: Convolution, generator: Generator) -> None:
        """Xavier uniform as a Linear, the bias as PyTorch has it."""
        pytorch_default_(module, generator)
        self.fill([module.weight], [None], Place(), generator)


@register
class JaxVit(Xavier):
    """google-research/big_vision's Vision Transformer (`vit.py`).

    Weights are Xavier uniform, U(+-sqrt(6 / (inputs + outputs))), the head is 0. The patch embedding is a normal of
    variance 1 / fan_in, cut at two standard deviations and corrected for it. Biases are 0, those of MLPs N(0,
    1e-6^2). A learned position embedding is N(0, 1 / D), the class token 0.

    Trap. timm's `weight_init="jax"` takes the fused W_q, W_k and W_v as one matrix, which is `qkv: fused`: a standard
    deviation smaller by the square root of 2, and logits half the size. Its position embedding is N(0, 0.02^2).
    """

    name = "jax_vit"
    head_std: ClassVar = 0.0
    mlp_bias_std = 1e-6

    qkv: Literal["per_matrix", "fused"] = "per_matrix"

    def convolution(self, module: Convolution, generator: Generator) -> None:
        """Flax's `lecun_normal`."""
        std = math.sqrt(1 / module.weight[0].numel()) / CUT
        draw_trunc_normal_(module.weight, std, generator, cut=2 * std)

    def position(self, parameter: Tensor, generator: Generator) -> None:
        """N(0, 1 / D)."""
        draw_normal_(parameter, parameter.shape[-1] ** -0.5, generator)


@register
class TorchvisionVit(Xavier):
    """torchvision's `VisionTransformer`, attention included, which is that of `nn.MultiheadAttention`.

    W_q, W_k and W_v together, and MLPs, are U(+-sqrt(6 / (inputs + outputs))), W_proj is U(+-1 / sqrt(D)), the head
    0. The patch embedding is a trunc normal of variance 1 / fan_in. Biases are 0, those of MLPs N(0, 1e-6^2), the
    position embedding is N(0, 0.02^2), the class token 0.

    Trap. `nn.MultiheadAttention` counts W_q, W_k and W_v as one matrix (pytorch issue 166378): they are smaller by the
    square root of 2 than in JAX.
    """

    name = "torchvision_vit"
    qkv: ClassVar = "fused"
    head_std: ClassVar = 0.0
    mlp_bias_std = 1e-6

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """As `Xavier`; W_proj as PyTorch has it."""
        if place.role == "proj":
            draw_uniform_(weight_OI, weight_OI.shape[1] ** -0.5, generator)
        else:
            super().matrix(weight_OI, place, generator)

    def convolution(self, module: Convolution, generator: Generator) -> None:
        """Trunc-normal of variance 1 / fan_in."""
        draw_trunc_normal_(module.weight, math.sqrt(1 / module.weight[0].numel()), generator)
