"""lucidrains' vit-pytorch: ViT and SimpleViT. The norm before attention is a part of it."""

from __future__ import annotations

import math
from typing import Any

from vitinit.initializers.adapter import Adapter, Attention, Part, fused, linear
from vitinit.initializers.errors import VitinitError

QUERY, KEY, VALUE = fused("to_qkv.weight", "")


def _attention(type_: str, proj: Part) -> Attention:
    return Attention(types=(type_,), heads="heads", query=QUERY, key=KEY, value=VALUE, proj=proj, norm="norm")


def _grid(model: Any) -> tuple[int, int]:
    """Kept nowhere in the model: the number of patches is taken to be that of a square."""
    class_token = getattr(model, "cls_token", None)
    patches = model.pos_embedding.shape[-2] - (0 if class_token is None else class_token.shape[-2])
    side = math.isqrt(patches)
    if side**2 != patches:
        raise VitinitError(
            f"{type(model).__name__} does not say what its token grid is, and {patches} patches make no square; write "
            "a vitinit.Adapter with its grid: docs/use.md, 'A model of your own'"
        )
    return side, side


VIT = Adapter(
    name="vit-pytorch ViT",
    models=("vit_pytorch.vit.ViT",),
    attention=(_attention("vit_pytorch.vit.Attention", linear("to_out.0")),),
    position="pos_embedding",
    grid=_grid,
    parameters={"cls_token": "class_token", "pos_embedding": "position"},
)
SIMPLE = Adapter(
    name="vit-pytorch SimpleViT",
    models=("vit_pytorch.simple_vit.SimpleViT",),
    attention=(_attention("vit_pytorch.simple_vit.Attention", linear("to_out")),),
    position="pos_embedding",
    grid=_grid,
)
