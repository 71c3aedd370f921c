"""PyTorch's MultiheadAttention, alone and in `nn.TransformerEncoder`."""

from vitinit.initializers.adapter import Adapter, Attention, fused, linear

TYPES = ("torch.nn.modules.activation.MultiheadAttention",)
QUERY, KEY, VALUE = fused("in_proj_weight", "in_proj_bias")
MULTIHEAD = Adapter(
    name="nn.MultiheadAttention",
    attention=(Attention(types=TYPES, heads="num_heads", query=QUERY, key=KEY, value=VALUE, proj=linear("out_proj")),),
    beside=(
        "open_clip.transformer.AttentionalPooler",
        "transformers.models.siglip.modeling_siglip.SiglipMultiheadAttentionPoolingHead",
        "transformers.models.siglip2.modeling_siglip2.Siglip2MultiheadAttentionPoolingHead",
    ),
    refused={
        "torch.nn.modules.transformer.TransformerDecoderLayer": "it attends from one sequence to another",
    },
)
