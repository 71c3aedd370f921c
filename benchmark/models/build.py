"""timm's VisionTransformer, ConViT and ConvMixer, built from a ModelSpec. Never forked."""

from __future__ import annotations

from typing import Any

import torch
from timm.layers import build_sincos2d_pos_embed, resample_abs_pos_embed
from timm.models.convit import ConVit
from timm.models.convmixer import ConvMixer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from benchmark.models.gated_attention import fuse_attention
from benchmark.spec import CONVMIXER, ModelSpec

_CONVIT = {"arch": "convit", "qkv_bias": False, "position": "learned", "pool": "token"}
_CONVMIXER = {"arch": "convmixer", **CONVMIXER, "kernel_size": 3}

PRESETS: dict[str, dict[str, Any]] = {
    "vit_micro": {"width": 48, "depth": 3, "heads": 4},
    "vit_tiny": {"width": 192, "depth": 12, "heads": 3},
    "vit_small": {"width": 384, "depth": 12, "heads": 6},
    "vit_base": {"width": 768, "depth": 12, "heads": 12},
    "convit_micro": {**_CONVIT, "width": 48, "depth": 3, "heads": 4, "gpsa_layers": 2},
    "convit_tiny": {**_CONVIT, "width": 192, "depth": 12, "heads": 4, "gpsa_layers": 10},
    "convit_small": {**_CONVIT, "width": 432, "depth": 12, "heads": 9, "gpsa_layers": 10},
    "convit_base": {**_CONVIT, "width": 768, "depth": 12, "heads": 16, "gpsa_layers": 10},
    "convmixer_micro": {**_CONVMIXER, "width": 128, "depth": 5},
    "convmixer_256_8": {**_CONVMIXER, "width": 256, "depth": 8},
    "convmixer_512_6": {**_CONVMIXER, "width": 512, "depth": 6},
}
"""Named sets of ModelSpec fields; a grid adds image_size and patch_size and may override any field.

`*_micro` are CPU-sized and ours; the others are the papers' (arXiv 2404.01139 and arXiv 2103.10697, Table 1). Those of
a ConvMixer name width and depth; the paper has them with patch 2 at 32 pixels, the larger one with kernel_size 5 too.
"""


VisionModel = VisionTransformer | ConVit | ConvMixer


def build_model(spec: ModelSpec, classes: int) -> VisionModel:
    """The model with unspecified weights: an initialiser sets every parameter afterwards.

    A sin-cos position embedding is a buffer (not a parameter, not trained): features
    [sin(y b), sin(x b), cos(y b), cos(x b)] with bands b_i = 10000^(-i/(D/4)), tokens in row-major order; the class
    token, where there is one, has no position. With average pooling the final norm comes after the pool.
    """
    with torch.random.fork_rng(devices=[]):  # timm draws while it builds; the global generator stays as it was
        if spec.arch == "convmixer":
            return _convmixer(spec, classes)
        model = _convit(spec, classes) if spec.arch == "convit" else _vit(spec, classes)
    model.patch_embed.register_forward_hook(_tokens_in_memory_order)
    return model


@torch.no_grad()
def at_image_size(model: VisionModel, spec: ModelSpec, image_size: int) -> VisionModel:
    """The same model for images of another size, to be fine-tuned there: a copy, with another token grid.

    A learned position embedding is resampled (bicubic, timm's way; a class token's stays), a sin-cos one computed anew,
    as many times its own size as the model's is. What is not trained stays so.
    GPSA's relative positions are offsets in tokens, the same weights on a larger or smaller set of them, so a head
    that looked one token to the right still does.

    Args:
        model: as `build_model` makes them, trained or not.
        spec: its own.
        image_size: pixels, divisible by the patch size.

    Raises:
        ValidationError: it is not.
    """
    larger = ModelSpec.model_validate({**spec.model_dump(), "image_size": image_size})
    head = model.head
    assert isinstance(head, nn.Linear)
    other, state = build_model(larger, head.out_features), dict(model.state_dict())
    if spec.position == "learned":
        with_class_token = isinstance(model, VisionTransformer) and model.has_class_token
        grid = [larger.grid, larger.grid]
        state["pos_embed"] = resample_abs_pos_embed(state["pos_embed"], grid, num_prefix_tokens=int(with_class_token))
    elif spec.position == "sincos":
        computed = build_model(spec, head.out_features).state_dict()["pos_embed"].to(state["pos_embed"])
        scale = state["pos_embed"].norm() / computed.norm()
        state["pos_embed"] = scale * other.state_dict()["pos_embed"].to(scale)
    other.load_state_dict(state)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        theirs.requires_grad_(ours.requires_grad)
    return other.to(head.weight.device).train(model.training)


def _tokens_in_memory_order(_: nn.Module, __: tuple[Tensor], tokens_BND: Tensor) -> Tensor:
    """A copy of the patch embedding's output, without which every later addition and norm goes against the grain.

    It comes transposed from the convolution, and sums keep that order. Only rounding differs. On two CPU cores a step
    of ViT-T takes 3 to 7 % less time.
    """
    return tokens_BND.contiguous()


def _convmixer(spec: ModelSpec, classes: int) -> ConvMixer:
    assert spec.kernel_size
    model = ConvMixer(
        dim=spec.width,
        depth=spec.depth,
        kernel_size=spec.kernel_size,
        patch_size=spec.patch_size,
        num_classes=classes,
        drop_rate=spec.drop_rate,
    )
    # on a CPU a training step then takes two thirds of the time; only rounding differs
    return model.to(memory_format=torch.channels_last)


def _convit(spec: ModelSpec, classes: int) -> ConVit:
    model = ConVit(
        img_size=spec.image_size,
        patch_size=spec.patch_size,
        num_classes=classes,
        embed_dim=spec.width // spec.heads,  # timm multiplies it by the number of heads
        depth=spec.depth,
        num_heads=spec.heads,
        mlp_ratio=spec.mlp_ratio,
        qkv_bias=spec.qkv_bias,
        drop_rate=spec.drop_rate,
        drop_path_rate=spec.drop_path_rate,
        local_up_to_layer=spec.gpsa_layers or 0,
    )
    return fuse_attention(model)


def _vit(spec: ModelSpec, classes: int) -> VisionTransformer:
    model = VisionTransformer(
        img_size=spec.image_size,
        patch_size=spec.patch_size,
        num_classes=classes,
        embed_dim=spec.width,
        depth=spec.depth,
        num_heads=spec.heads,
        mlp_ratio=spec.mlp_ratio,
        qkv_bias=spec.qkv_bias,
        global_pool=spec.pool,
        class_token=spec.pool == "token",
        no_embed_class=spec.position == "sincos",
        drop_rate=spec.drop_rate,
        drop_path_rate=spec.drop_path_rate,
        weight_init="skip",
    )
    if spec.position == "sincos":
        embedding_ND = build_sincos2d_pos_embed([spec.grid, spec.grid], spec.width)
        del model.pos_embed
        model.register_buffer("pos_embed", embedding_ND[None])
    return model


def parameter_count(model: nn.Module) -> int:
    """Number of trainable values."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
