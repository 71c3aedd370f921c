"""timm's ConViT: gated positional self-attention, then self-attention."""

from vitinit.initializers.adapter import Adapter, Attention, fused, linear, one_linear

GATED = Attention(
    types=("timm.models.convit.GPSA",),
    heads="num_heads",
    query=fused("qk.weight", "qk.bias", 2)[0],
    key=fused("qk.weight", "qk.bias", 2)[1],
    value=linear("v"),
    proj=linear("proj"),
    gated=True,
)
PLAIN = one_linear("timm.models.convit.MHSA")
CONVIT = Adapter(
    name="timm ConViT",
    models=("timm.models.convit.ConVit",),
    attention=(GATED, PLAIN),
    position="pos_embed",
    grid=lambda model: model.patch_embed.grid_size,
    parameters={"cls_token": "class_token", "pos_embed": "position", "*.gating_param": 1.0},
)
