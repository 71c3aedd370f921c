"""timm's XCiT and CrossViT: bases set them, methods for attention from token to token have nothing to set."""

from vitinit.initializers.adapter import Adapter, Normal

XCIT = Adapter(
    name="timm XCiT",
    models=("timm.models.xcit.Xcit",),
    parameters={"cls_token": Normal(0.02), "*.temperature": 1.0, "*.gamma?": "layer_scale"},
    refused={"timm.models.xcit.XCA": "it attends from channel to channel, not from token to token"},
)
CROSSVIT = Adapter(
    name="timm CrossViT",
    models=("timm.models.crossvit.CrossVit",),
    parameters={"cls_token_?": Normal(0.02), "pos_embed_?": "position"},
    refused={
        "timm.models.crossvit.Attention": "it is one of two branches with grids of their own",
        "timm.models.crossvit.CrossAttention": "it attends from one branch to another",
    },
)
