"""torchvision's VisionTransformer and Swin Transformer (the first version)."""

from initializers.adapter import Adapter, Attention, Normal, fused, linear

VIT = Adapter(
    name="torchvision ViT",
    models=("torchvision.models.vision_transformer.VisionTransformer",),
    position="encoder.pos_embedding",
    grid=lambda model: (model.image_size // model.patch_size,) * 2,
    parameters={"class_token": "class_token", "encoder.pos_embedding": "position"},
)
QUERY, KEY, VALUE = fused("qkv.weight", "qkv.bias")
SWIN = Adapter(
    name="torchvision Swin",
    models=("torchvision.models.swin_transformer.SwinTransformer",),
    attention=(
        Attention(
            types=("torchvision.models.swin_transformer.ShiftedWindowAttention",),
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
    parameters={"*.relative_position_bias_table": Normal(0.02), "*.logit_scale": "keep"},
    refused={
        "torchvision.models.swin_transformer.ShiftedWindowAttentionV2": "it attends by cosines, so that the size of "
        "W_q and W_k has no effect"
    },
)
