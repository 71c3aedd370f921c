"""timm's Swin (the first version): attention in windows, relative position bias."""

from initializers.adapter import WINDOWS, Adapter, Normal, one_linear

COSINES = "it attends by cosines, so that the size of W_q and W_k has no effect"
SWIN = Adapter(
    name="timm Swin",
    models=("timm.models.swin_transformer.SwinTransformer",),
    attention=(one_linear("timm.models.swin_transformer.WindowAttention", mask="mask", **WINDOWS),),
    parameters={"*.relative_position_bias_table": Normal(0.02)},
    refused={
        "timm.models.swin_transformer_v2.WindowAttention": COSINES,
        "timm.models.swin_transformer_v2_cr.WindowMultiHeadAttention": COSINES,
    },
)
