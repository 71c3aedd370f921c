"""timm's EVA and what is built of its blocks: q, k, v in one matrix or in three, positions added, rotated, or both."""

from typing import Any

from vitinit.initializers.adapter import Adapter, Attention, Normal, linear, one_linear

NORMS: dict[str, Any] = {"query_norm": "q_norm", "key_norm": "k_norm", "before_proj": ("norm", "gate")}
TYPES = ("timm.models.eva.EvaAttention", "timm.layers.attention.AttentionRope")
EVA = Adapter(
    name="timm EVA",
    models=("timm.models.eva.Eva",),
    attention=(
        one_linear(
            "timm.models.eva.EvaAttention",
            biases=("q_bias", "", "v_bias"),
            **NORMS,
        ),
        one_linear(
            "timm.layers.attention.AttentionRope",
            **NORMS,
        ),
        Attention(
            types=TYPES,
            heads="num_heads",
            query=linear("q_proj"),
            key=linear("k_proj"),
            value=linear("v_proj"),
            proj=linear("proj"),
            **NORMS,
        ),
    ),
    position="pos_embed",
    grid=lambda model: model.patch_embed.grid_size,
    rotary=lambda model: model.rope is not None,
    parameters={
        "cls_token": Normal(0.02),
        "reg_token": Normal(0.02),
        "pos_embed": "position",
        "attn_pool.latent": "probe",
        "*.gamma_?": "layer_scale",
        "rope.freqs": "keep",  # angles, drawn by the library
    },
    beside=("timm.layers.attention_pool.AttentionPoolLatent",),
)
