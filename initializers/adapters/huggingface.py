"""Hugging Face transformers: ViT, DeiT, MSN, MAE, DINOv2 and Swin, in the layouts of versions 4 and 5."""

from __future__ import annotations

from typing import Any

from vitinit.initializers.adapter import Adapter, Attention, Normal, linear

HOME = "transformers.models"


def _attention(*types: str, table: bool = False) -> tuple[Attention, ...]:
    """Version 5 has the matrices in the module itself; version 4 one below it, W_proj in a sister of that."""
    four, five = ("attention", "self")[table], "relative_position_bias"
    return (
        Attention(
            types=types,
            heads="num_attention_heads",
            query=linear("q_proj"),
            key=linear("k_proj"),
            value=linear("v_proj"),
            proj=linear("o_proj"),
            table=f"{five}.relative_position_bias_table" if table else "",
            table_index=f"{five}.relative_position_index" if table else "",
            window=f"{five}.window_size" if table else "",
        ),
        Attention(
            types=types,
            heads=f"{four}.num_attention_heads",
            query=linear(f"{four}.query"),
            key=linear(f"{four}.key"),
            value=linear(f"{four}.value"),
            proj=linear("output.dense"),
            table=f"{four}.relative_position_bias_table" if table else "",
            table_index=f"{four}.relative_position_index" if table else "",
            window=f"{four}.window_size" if table else "",
        ),
    )


def _grid(model: Any) -> tuple[int, int]:
    embedding = model.embeddings.patch_embeddings
    (height, width), (rows, columns) = (
        side if isinstance(side, tuple | list) else (side, side)
        for side in (embedding.image_size, embedding.patch_size)
    )
    return height // rows, width // columns


VIT = Adapter(
    name="Hugging Face ViT",
    models=(
        f"{HOME}.vit.modeling_vit.ViTModel",
        f"{HOME}.deit.modeling_deit.DeiTModel",
        f"{HOME}.dinov2.modeling_dinov2.Dinov2Model",
        f"{HOME}.dinov2.modeling_dinov2.Dinov2Backbone",
        f"{HOME}.dinov2_with_registers.modeling_dinov2_with_registers.Dinov2WithRegistersModel",
        f"{HOME}.dinov2_with_registers.modeling_dinov2_with_registers.Dinov2WithRegistersBackbone",
        f"{HOME}.vit_msn.modeling_vit_msn.ViTMSNModel",
    ),
    attention=_attention(
        f"{HOME}.vit.modeling_vit.ViTAttention",
        f"{HOME}.deit.modeling_deit.DeiTAttention",
        f"{HOME}.dinov2.modeling_dinov2.Dinov2Attention",
        f"{HOME}.dinov2_with_registers.modeling_dinov2_with_registers.Dinov2WithRegistersAttention",
        f"{HOME}.vit_msn.modeling_vit_msn.ViTMSNAttention",
    ),
    position="embeddings.position_embeddings",
    grid=_grid,
    parameters={
        "embeddings.cls_token": "class_token",
        "embeddings.position_embeddings": "position",
        "embeddings.distillation_token": Normal(0.02),
        "embeddings.register_tokens": Normal(1e-6),  # as the authors' code; at 0, which is here, they stay alike
        "embeddings.mask_token": 0.0,
        "*.lambda1": "layer_scale",
    },
)
MAE = Adapter(
    name="Hugging Face MAE",
    models=(f"{HOME}.vit_mae.modeling_vit_mae.ViTMAEModel",),
    attention=_attention(f"{HOME}.vit_mae.modeling_vit_mae.ViTMAEAttention"),
    position="embeddings.position_embeddings",
    grid=_grid,
    parameters={"embeddings.cls_token": "class_token", "embeddings.position_embeddings": "keep"},  # fixed sines
)
SWIN_V2 = Adapter(
    name="Hugging Face Swin V2",
    models=(f"{HOME}.swinv2.modeling_swinv2.Swinv2Model", f"{HOME}.swinv2.modeling_swinv2.Swinv2Backbone"),
    parameters={
        "*.logit_scale": "keep",
        "embeddings.position_embeddings": "position",
        "embeddings.mask_token": 0.0,
    },
    refused={
        f"{HOME}.swinv2.modeling_swinv2.Swinv2SelfAttention": "it attends by cosines, so that the size of W_q and W_k "
        "has no effect"
    },
)
SWIN = Adapter(
    name="Hugging Face Swin",
    models=(f"{HOME}.swin.modeling_swin.SwinModel", f"{HOME}.swin.modeling_swin.SwinBackbone"),
    attention=_attention(f"{HOME}.swin.modeling_swin.SwinAttention", table=True),
    parameters={
        "*.relative_position_bias_table": 0.0,
        "embeddings.position_embeddings": "position",
        "embeddings.mask_token": 0.0,
    },
)
