"""timm's BEiT: biases of q and v alone, relative position bias of every layer or of all."""

from vitinit.initializers.adapter import WINDOWS, Adapter, one_linear

BEIT = Adapter(
    name="timm BEiT",
    models=("timm.models.beit.Beit",),
    attention=(one_linear("timm.models.beit.Attention", biases=("q_bias", "", "v_bias"), **WINDOWS),),
    position="pos_embed",
    grid=lambda model: model.patch_embed.grid_size,
    parameters={
        "cls_token": "class_token",
        "pos_embed": "position",
        "*relative_position_bias_table": 0.0,
        "*.gamma_?": "layer_scale",
    },
)
