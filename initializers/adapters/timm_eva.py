"""timm's EVA and what is built of its blocks: q, k, v in one matrix or in three, positions added, rotated, or both."""

from initializers.adapter import Adapter, Attention, Normal, Part, fused, linear

QUERY, KEY, VALUE = fused("qkv.weight", "qkv.bias")
TYPES = ("timm.models.eva.EvaAttention", "timm.layers.attention.AttentionRope")
EVA = Adapter(
    name="timm EVA",
    models=("timm.models.eva.Eva",),
    attention=(
        Attention(
            types=("timm.models.eva.EvaAttention",),
            heads="num_heads",
            query=Part("qkv.weight", "q_bias", 0, 3),
            key=Part("qkv.weight", "", 1, 3),
            value=Part("qkv.weight", "v_bias", 2, 3),
            proj=linear("proj"),
            query_norm="q_norm",
            key_norm="k_norm",
            before_proj=("norm", "gate"),
        ),
        Attention(
            types=("timm.layers.attention.AttentionRope",),
            heads="num_heads",
            query=QUERY,
            key=KEY,
            value=VALUE,
            proj=linear("proj"),
            query_norm="q_norm",
            key_norm="k_norm",
            before_proj=("norm", "gate"),
        ),
        Attention(
            types=TYPES,
            heads="num_heads",
            query=linear("q_proj"),
            key=linear("k_proj"),
            value=linear("v_proj"),
            proj=linear("proj"),
            query_norm="q_norm",
            key_norm="k_norm",
            before_proj=("norm", "gate"),
        ),
    ),
    position="pos_embed",
    grid=lambda model: model.patch_embed.grid_size,
    rotary=lambda model: model.rope is not None,
    parameters={
        "cls_token": Normal(0.02),
        "reg_token": Normal(0.02),
        "pos_embed": "position",
        "attn_pool.latent": Normal(None),
        "*.gamma_?": "keep",
    },
    beside=("timm.layers.attention_pool.AttentionPoolLatent",),
)
