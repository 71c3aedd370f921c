"""Bases that libraries have by default: PyTorch's `kaiming_uniform`, and timm's `trunc_normal`."""

import math
from typing import ClassVar, Literal

from pydantic import PositiveFloat
from torch import Generator, Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import (
    Convolution,
    Place,
    WholeModel,
    draw_trunc_normal_,
    draw_uniform_,
    pytorch_default_,
)


@register
class KaimingUniform(WholeModel):
    """PyTorch's default: Linear weights and biases U(+-1/sqrt(fan_in)).

    The row "Kaiming Uniform" of arXiv 2404.01139 (timm `weight_init="skip"`). A learned position embedding is
    N(0, 0.02^2) and the class token 0, as timm leaves them in that mode.
    """

    name = "kaiming_uniform"
    every_linear_alike = True
    qkv: ClassVar = "fused"

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """U(+-1/sqrt(fan_in))."""
        draw_uniform_(weight_OI, 1 / math.sqrt(weight_OI.shape[1]), generator)

    def bias(self, bias_O: Tensor, fan_in: int, place: Place, generator: Generator) -> None:
        """U(+-1/sqrt(fan_in))."""
        draw_uniform_(bias_O, 1 / math.sqrt(fan_in), generator)


@register
class TruncNormal(WholeModel):
    """timm's default: Linear weights trunc-normal with std 0.02, biases 0.

    The row "Trunc Normal" of arXiv 2404.01139 (timm `weight_init=""`). The truncation is at +-2, absolute: at std 0.02
    that is 100 standard deviations, a plain normal in effect. The patch embedding is a convolution and keeps the
    PyTorch default. A learned position embedding is drawn like a weight, the class token is N(0, 1e-6^2).

    With `std: kaiming` every weight has the standard deviation that `kaiming_uniform` gives it, 1/sqrt(3 fan_in), so
    that the two bases differ in the shape of the distribution and in the biases, not in scale. A position embedding has
    no fan_in: it keeps 0.02, which is also what `kaiming_uniform` gives it.
    """

    name = "trunc_normal"
    every_linear_alike = True
    qkv: ClassVar = "fused"
    class_token_std = 1e-6

    std: PositiveFloat | Literal["kaiming"] = 0.02

    def matrix(self, weight_OI: Tensor, place: Place, generator: Generator) -> None:
        """Trunc-normal."""
        std = (3 * weight_OI.shape[1]) ** -0.5 if self.std == "kaiming" else self.std
        draw_trunc_normal_(weight_OI, std, generator)

    def convolution(self, module: Convolution, generator: Generator) -> None:
        """PyTorch's default."""
        pytorch_default_(module, generator)

    def position(self, parameter: Tensor, generator: Generator) -> None:
        """Trunc-normal."""
        draw_trunc_normal_(parameter, 0.02 if self.std == "kaiming" else self.std, generator)
