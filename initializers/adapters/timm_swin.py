"""timm's Swin: attention in windows, relative position bias. The second version attends by cosines: bases alone."""

from vitinit.initializers.adapter import WINDOWS, Adapter, Normal, one_linear

COSINES = "it attends by cosines, so that the size of W_q and W_k has no effect"
SWIN = Adapter(
    name="timm Swin",
    models=("timm.models.swin_transformer.SwinTransformer",),
    attention=(one_linear("timm.models.swin_transformer.WindowAttention", **WINDOWS),),
    parameters={"*.relative_position_bias_table": Normal(0.02)},
)
SWIN_V2 = Adapter(
    name="timm Swin V2",
    models=(
        "timm.models.swin_transformer_v2.SwinTransformerV2",
        "timm.models.swin_transformer_v2_cr.SwinTransformerV2Cr",
    ),
    parameters={
        "*.logit_scale": "keep",
        "*.q_bias": 0.0,
        "*.v_bias": 0.0,
        "*.blocks.*.norm[12].weight": "layer_scale",  # behind its branches, and 0 in timm
    },
    refused={
        "timm.models.swin_transformer_v2.WindowAttention": COSINES,
        "timm.models.swin_transformer_v2_cr.WindowMultiHeadAttention": COSINES,
    },
)
