"""timm's CaiT: talking heads between the patches; the class token looks at them in layers of its own."""

from vitinit.initializers.adapter import Adapter, Normal, one_linear

CAIT = Adapter(
    name="timm CaiT",
    models=("timm.models.cait.Cait",),
    attention=(one_linear("timm.models.cait.TalkingHeadAttn", talking=("proj_l", "proj_w")),),
    position="pos_embed",
    grid=lambda model: model.patch_embed.grid_size,
    parameters={"cls_token": Normal(0.02), "pos_embed": "position", "*.gamma_?": "layer_scale"},
    beside=("timm.models.cait.ClassAttn",),
)
