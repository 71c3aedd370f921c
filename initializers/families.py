"""Families of models: where they have what bases and methods set. Data; nothing here is imported but by name."""

from __future__ import annotations

from typing import Any

from vitinit.initializers.adapter import Adapter, Attention, Normal, Part, Type, fused, linear
from vitinit.initializers.errors import VitinitError

NORMS: dict[str, Any] = {"query_norm": "q_norm", "key_norm": "k_norm", "before_proj": ("norm", "gate")}
"""Attribute names of what else timm has in attention."""


def attention(
    types: tuple[Type, ...], qkv: tuple[Part, ...], proj: str, heads: str = "num_heads", **more: Any
) -> Attention:
    """Attention with W_q, W_k and W_v as given, W_proj in a Linear; and `more` of it."""
    query, key, value = qkv
    return Attention(types, heads, query, key, value, linear(proj), **more)


def one_linear(*types: Type, biases: tuple[str, str, str] = ("qkv.bias",) * 3, **more: Any) -> Attention:
    """Attention as most libraries have it: W_q, W_k and W_v in a Linear `qkv`, W_proj in `proj`; and `more` of it."""
    return attention(
        types, tuple(Part("qkv.weight", bias, index, 3) for index, bias in enumerate(biases)), "proj", **more
    )


def separate(types: tuple[Type, ...], *linears: str, **more: Any) -> Attention:
    """Attention with a Linear for each of W_q, W_k, W_v and W_proj."""
    return attention(types, tuple(map(linear, linears[:3])), linears[3], **more)


def timm_grid(model: Any) -> tuple[int, int]:
    """Rows and columns of the patches in most of timm's models."""
    return model.patch_embed.grid_size


# --- Hugging Face transformers, from version 5 on ---------------------------------------------------------------------


def hugging_face(file: str, *names: str) -> tuple[str, ...]:
    """Types of one file of transformers."""
    return tuple(f"transformers.models.{file}.modeling_{file}.{name}" for name in names)


def hugging_face_grid(model: Any) -> tuple[int, int]:
    """Rows and columns of the patches.

    Raises:
        VitinitError: DINOv2 of images that are no squares, whose positions are interpolated as from a square.
    """
    embedding = model.embeddings.patch_embeddings
    (height, width), (down, across) = embedding.image_size, embedding.patch_size
    if height != width and "Dinov2" in type(model).__name__:
        raise VitinitError(f"{type(model).__name__} of {height} x {width} interpolates its positions as from a square")
    return height // down, width // across


HUGGING_FACE = (
    Adapter(
        name="Hugging Face ViT",
        models=(
            *hugging_face("vit", "ViTModel"),
            *hugging_face("deit", "DeiTModel"),
            *hugging_face("dinov2", "Dinov2Model", "Dinov2Backbone"),
        ),
        attention=(
            separate(
                (
                    *hugging_face("vit", "ViTAttention"),
                    *hugging_face("deit", "DeiTAttention"),
                    *hugging_face("dinov2", "Dinov2Attention"),
                ),
                "q_proj",
                "k_proj",
                "v_proj",
                "o_proj",
                heads="num_attention_heads",
            ),
        ),
        position="embeddings.position_embeddings",
        grid=hugging_face_grid,
        parameters={
            "embeddings.cls_token": "class_token",
            "embeddings.position_embeddings": "position",
            "embeddings.distillation_token": Normal(0.02),
            "embeddings.mask_token": 0.0,
            "*.lambda1": "layer_scale",
        },
    ),
)

# --- timm ------------------------------------------------------------------------------------------------------------

QUERY_KEY = fused("qk.weight", "qk.bias", 2)
"""W_q and W_k of ConViT's gated attention."""
EVA_TYPES = "timm.models.eva.EvaAttention", "timm.layers.attention.AttentionRope"
TIMM = (
    Adapter(
        name="timm BEiT",  # biases of q and v alone, relative position bias of every layer or of all
        models=("timm.models.beit.Beit",),
        attention=(one_linear("timm.models.beit.Attention", biases=("q_bias", "", "v_bias"), window="window_size"),),
        position="pos_embed",
        grid=timm_grid,
        parameters={
            "cls_token": "class_token",
            "pos_embed": "position",
            "*relative_position_bias_table": 0.0,
            "*.gamma_?": "layer_scale",
        },
    ),
    Adapter(
        name="timm ConViT",  # gated positional self-attention, then self-attention
        models=("timm.models.convit.ConVit",),
        attention=(
            attention(("timm.models.convit.GPSA",), (*QUERY_KEY, linear("v")), "proj", gated=True),
            one_linear("timm.models.convit.MHSA"),
        ),
        position="pos_embed",
        grid=timm_grid,
        parameters={"cls_token": "class_token", "pos_embed": "position", "*.gating_param": 1.0},
    ),
    Adapter(name="timm ConvMixer", models=("timm.models.convmixer.ConvMixer",), filters=True),
    Adapter(
        name="timm EVA",  # q, k, v in one matrix or in three, positions added, rotated, or both
        models=("timm.models.eva.Eva",),
        attention=(
            one_linear(EVA_TYPES[0], biases=("q_bias", "", "v_bias"), **NORMS),
            one_linear(EVA_TYPES[1], **NORMS),
            separate(EVA_TYPES, "q_proj", "k_proj", "v_proj", "proj", **NORMS),
        ),
        position="pos_embed",
        grid=timm_grid,
        rotary=lambda model: model.rope is not None,
        parameters={
            "cls_token": Normal(0.02),
            "reg_token": Normal(0.02),
            "pos_embed": "position",
            "*.gamma_?": "layer_scale",
            "rope.freqs": "keep",  # angles, drawn by the library
        },
    ),
    Adapter(
        name="timm MLP-Mixer",  # and ResMLP
        models=("timm.models.mlp_mixer.MlpMixer",),
        grid=lambda model: model.stem.grid_size,
        parameters={"*.alpha": 1.0, "*.beta": 0.0, "*.ls1": "layer_scale", "*.ls2": "layer_scale"},
    ),
    Adapter(
        name="timm Swin",
        models=("timm.models.swin_transformer.SwinTransformer",),
        attention=(one_linear("timm.models.swin_transformer.WindowAttention", window="window_size"),),
        parameters={"*.relative_position_bias_table": Normal(0.02)},
    ),
    Adapter(
        name="timm ViT",  # and DeiT, with class, distilled and register tokens, layer scale, normalised q, k
        models=("timm.models.vision_transformer.VisionTransformer",),
        attention=(one_linear("timm.layers.attention.Attention", "timm.models.vision_transformer.Attention", **NORMS),),
        position="pos_embed",
        grid=timm_grid,
        parameters={
            "cls_token": "class_token",
            "reg_token": Normal(1e-6),
            "dist_token": Normal(0.02),
            "pos_embed": "position",
            "*.gamma": "layer_scale",
        },
    ),
)

# --- PyTorch, torchvision -------------------------------------------------------------------------------

OTHERS = (
    Adapter(
        name="nn.MultiheadAttention",  # alone and in nn.TransformerEncoder
        attention=(
            attention(
                ("torch.nn.modules.activation.MultiheadAttention",), fused("in_proj_weight", "in_proj_bias"), "out_proj"
            ),
        ),
        refused={
            "torch.nn.modules.transformer.TransformerDecoderLayer": "it attends from one sequence to another",
        },
    ),
    Adapter(
        name="torchvision ViT",
        models=("torchvision.models.vision_transformer.VisionTransformer",),
        position="encoder.pos_embedding",
        grid=lambda model: (model.image_size // model.patch_size,) * 2,
        parameters={"class_token": "class_token", "encoder.pos_embedding": "position"},
    ),
)
FAMILIES: tuple[Adapter, ...] = (*HUGGING_FACE, *TIMM, *OTHERS)
