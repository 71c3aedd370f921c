"""What the bases share: visiting every parameter of a model exactly once."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from initializers.errors import VitinitError
from initializers.registry import Initializer, Progress


def draw_uniform_(tensor: Tensor, bound: float, generator: torch.Generator) -> None:
    """Fill with U(-bound, bound), drawn where the generator lives, so that every device gets the same numbers."""
    tensor.copy_(torch.empty(tensor.shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator))


def draw_normal_(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with N(0, std^2)."""
    tensor.copy_(torch.empty(tensor.shape, dtype=torch.float32).normal_(0.0, std, generator=generator))


def draw_trunc_normal_(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with N(0, std^2) cut at the absolute bounds -2 and 2, as timm and PyTorch do by default.

    At std 0.02 the cut is at 100 standard deviations: a plain normal in effect.
    """
    fresh = torch.empty(tensor.shape, dtype=torch.float32)
    tensor.copy_(nn.init.trunc_normal_(fresh, std=std, generator=generator))


def pytorch_default_(module: nn.Linear | nn.Conv2d, generator: torch.Generator) -> None:
    """PyTorch's own default of Linear and Conv2d: weight and bias both U(+-1/sqrt(fan_in)).

    `kaiming_uniform_(a=sqrt(5))` in torch.nn comes to exactly this bound.
    """
    bound = 1 / math.sqrt(module.weight[0].numel())
    draw_uniform_(module.weight, bound, generator)
    if module.bias is not None:
        draw_uniform_(module.bias, bound, generator)


class WholeModel(Initializer):
    """A base. Norms get weight 1 and bias 0, convolutions (the patch embedding) the PyTorch default, gates 1."""

    kind: ClassVar[Literal["base", "method"]] = "base"
    touches: ClassVar[tuple[str, ...]] = ("*",)

    @abstractmethod
    def linear(self, module: nn.Linear, generator: torch.Generator) -> None:
        """Set weight and bias of one Linear."""

    @abstractmethod
    def embedding(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Set a learned position embedding (`pos_embed`) or class token (`cls_token`)."""

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, progress: Progress) -> None:
        """Set every parameter.

        Raises:
            VitinitError: the model has a parameter that no rule covers.
        """
        for path, module in model.named_modules():
            if isinstance(module, nn.Linear):
                self.linear(module, generator)
            elif isinstance(module, nn.Conv2d):
                pytorch_default_(module, generator)
            elif isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.BatchNorm2d):
                module.reset_parameters()
            else:
                for name, parameter in module.named_parameters(recurse=False):
                    if name in ("pos_embed", "cls_token"):
                        self.embedding(name, parameter, generator)
                    elif name == "gating_param":
                        parameter.fill_(1.0)
                    else:
                        full = f"{path}.{name}" if path else name
                        raise VitinitError(f"base {self.name!r} has no rule for the parameter {full!r}")
