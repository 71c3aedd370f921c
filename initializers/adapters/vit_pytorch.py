"""lucidrains' vit-pytorch: ViT and SimpleViT. The norm before attention is a part of it."""

from __future__ import annotations

from typing import Any

from initializers.adapter import Adapter, Attention, Part, fused, linear

QUERY, KEY, VALUE = fused("to_qkv.weight", "")


def _attention(type_: str, proj: Part) -> Attention:
    return Attention(types=(type_,), heads="heads", query=QUERY, key=KEY, value=VALUE, proj=proj, norm="norm")


def _grid(model: Any) -> tuple[int, int]:
    """Known to the reshaping alone, which takes an image to its patches; the number of patches is that of a square."""
    places = model.pos_embedding.shape[-2]
    side = int(places**0.5)  # a class token adds one to a square, which leaves the root where it is
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
