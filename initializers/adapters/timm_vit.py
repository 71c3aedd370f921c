"""timm's VisionTransformer: ViT and DeiT, with class, distilled and register tokens, layer scale, normalised q, k."""

from vitinit.initializers.adapter import Adapter, Normal, one_linear

ATTENTION = one_linear(
    "timm.layers.attention.Attention",
    "timm.models.vision_transformer.Attention",
    query_norm="q_norm",
    key_norm="k_norm",
    before_proj=("norm", "gate"),
)
VIT = Adapter(
    name="timm ViT",
    models=("timm.models.vision_transformer.VisionTransformer",),
    attention=(ATTENTION,),
    position="pos_embed",
    grid=lambda model: model.patch_embed.grid_size,
    parameters={
        "cls_token": "class_token",
        "reg_token": Normal(1e-6),
        "dist_token": Normal(0.02),
        "pos_embed": "position",
        "attn_pool.latent": "probe",
        "*.gamma": "layer_scale",
    },
    refused={
        "timm.models.vision_transformer.ParallelScalingBlock": "its q, k, v and MLP are rows of one matrix",
        "timm.models.vision_transformer.DiffParallelScalingBlock": "it attends by the difference of two softmaxes",
        "timm.layers.diff_attention.DiffAttention": "it attends by the difference of two softmaxes",
    },
    scaling_norms=("timm.models.vision_transformer.ResPostBlock",),
    beside=("timm.layers.attention_pool.AttentionPoolLatent",),
)
