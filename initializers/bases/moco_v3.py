"""Base `moco_v3`: what MoCo v3 starts from."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import Place, WholeModel, draw_normal_, draw_xavier_uniform_


@register
class MocoV3(WholeModel):
    """facebookresearch/moco-v3's Vision Transformer (`vits.py`).

    All weights, the patch embedding's too, are U(+-sqrt(6 / (inputs + outputs))), W_q, W_k and W_v each on its own.
    Biases are 0, the class token is N(0, 1e-6^2). Its position embedding is fixed; a learned one is N(0, 0.02^2)
    here.

    Trap. timm's `weight_init="moco"` leaves the patch embedding as PyTorch has it.
    """

    name: ClassVar[str] = "moco_v3"

    stop_grad_conv1: bool = False
    """Do not train the patch embedding, as MoCo v3 does for stability."""

    def check(self, model: nn.Module) -> None:
        """Refuse to hold a patch embedding still that is no convolution."""
        super().check(model)
        if self.stop_grad_conv1 and _patches(model) is None:
            raise VitinitError(
                f"base 'moco_v3': {type(model).__name__} has no convolution as patch embedding; stop_grad_conv1 must "
                "be false"
            )

    def freeze(self, model: nn.Module) -> None:
        """Exclude the patch embedding from training, where asked to."""
        patches = _patches(model) if self.stop_grad_conv1 else None
        for parameter in patches.parameters() if patches is not None else ():
            parameter.requires_grad = False

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Xavier uniform."""
        draw_xavier_uniform_(weight_OI, generator)

    def embedding(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Position embedding N(0, 0.02^2), class token N(0, 1e-6^2)."""
        draw_normal_(parameter, 0.02 if name == "pos_embed" else 1e-6, generator)


def _patches(model: nn.Module) -> nn.Conv2d | None:
    return next((part for part in model.modules() if isinstance(part, nn.Conv2d)), None)
