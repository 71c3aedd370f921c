"""torchvision's VisionTransformer and Swin Transformer (the first version)."""

from vitinit.initializers.adapter import WINDOWS, Adapter, Normal, one_linear

VIT = Adapter(
    name="torchvision ViT",
    models=("torchvision.models.vision_transformer.VisionTransformer",),
    position="encoder.pos_embedding",
    grid=lambda model: (model.image_size // model.patch_size,) * 2,
    parameters={"class_token": "class_token", "encoder.pos_embedding": "position"},
)
SWIN = Adapter(
    name="torchvision Swin",
    models=("torchvision.models.swin_transformer.SwinTransformer",),
    attention=(one_linear("torchvision.models.swin_transformer.ShiftedWindowAttention", **WINDOWS),),
    parameters={"*.relative_position_bias_table": Normal(0.02), "*.logit_scale": "keep"},
    refused={
        "torchvision.models.swin_transformer.ShiftedWindowAttentionV2": "it attends by cosines, so that the size of "
        "W_q and W_k has no effect"
    },
)
