"""timm's Swin (the first version): attention in windows, relative position bias."""

from initializers.adapter import Adapter, Attention, Normal, fused, linear

QUERY, KEY, VALUE = fused("qkv.weight", "qkv.bias")
COSINES = "it attends by cosines, so that the size of W_q and W_k has no effect"
SWIN = Adapter(
    name="timm Swin",
    models=("timm.models.swin_transformer.SwinTransformer",),
    attention=(
        Attention(
            types=("timm.models.swin_transformer.WindowAttention",),
            heads="num_heads",
            query=QUERY,
            key=KEY,
            value=VALUE,
            proj=linear("proj"),
            table="relative_position_bias_table",
            table_index="relative_position_index",
            window="window_size",
        ),
    ),
    parameters={"*.relative_position_bias_table": Normal(0.02)},
    refused={
        "timm.models.swin_transformer_v2.WindowAttention": COSINES,
        "timm.models.swin_transformer_v2_cr.WindowMultiHeadAttention": COSINES,
    },
)
