"""timm's BEiT: biases of q and v alone, relative position bias of every layer or of all."""

from initializers.adapter import Adapter, Attention, Part, linear

BEIT = Adapter(
    name="timm BEiT",
    models=("timm.models.beit.Beit",),
    attention=(
        Attention(
            types=("timm.models.beit.Attention",),
            heads="num_heads",
            query=Part("qkv.weight", "q_bias", 0, 3),
            key=Part("qkv.weight", "", 1, 3),
            value=Part("qkv.weight", "v_bias", 2, 3),
            proj=linear("proj"),
            table="relative_position_bias_table",
            table_index="relative_position_index",
            window="window_size",
        ),
    ),
    position="pos_embed",
    grid=lambda model: model.patch_embed.grid_size,
    parameters={
        "cls_token": "class_token",
        "pos_embed": "position",
        "*relative_position_bias_table": 0.0,
        "*.gamma_?": "keep",
    },
)
