"""Base `moco_v3`: what MoCo v3 starts from."""

from __future__ import annotations

import torch
from torch import Tensor

from vitinit.initializers.registry import register
from vitinit.initializers.whole_model import Place, WholeModel, draw_xavier_uniform_


@register
class MocoV3(WholeModel):
    """facebookresearch/moco-v3's Vision Transformer (`vits.py`).

    All weights, the patch embedding's too, are U(+-sqrt(6 / (inputs + outputs))), W_q, W_k and W_v each on its own.
    Biases are 0, the class token is N(0, 1e-6^2). Its position embedding is fixed; a learned one is N(0, 0.02^2)
    here.

    Trap. timm's `weight_init="moco"` leaves the patch embedding as PyTorch has it.
    """

    name = "moco_v3"
    class_token_std = 1e-6

    def matrix(self, weight_OI: Tensor, place: Place, generator: torch.Generator) -> None:
        """Xavier uniform."""
        draw_xavier_uniform_(weight_OI, generator)
