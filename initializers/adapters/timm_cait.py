"""timm's CaiT: talking heads between the patches; the class token looks at them in layers of its own."""

from initializers.adapter import Adapter, Attention, Normal, fused, linear

QUERY, KEY, VALUE = fused("qkv.weight", "qkv.bias")
CAIT = Adapter(
    name="timm CaiT",
    models=("timm.models.cait.Cait",),
    attention=(
        Attention(
            types=("timm.models.cait.TalkingHeadAttn",),
            heads="num_heads",
            query=QUERY,
            key=KEY,
            value=VALUE,
            proj=linear("proj"),
            talking=("proj_l", "proj_w"),
        ),
    ),
    position="pos_embed",
    grid=lambda model: model.patch_embed.grid_size,
    parameters={"cls_token": Normal(0.02), "pos_embed": "position", "*.gamma_?": "keep"},
    beside=("timm.models.cait.ClassAttn",),
)
