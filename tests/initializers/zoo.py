"""Small models of many families and libraries, as their users make them; 32 x 32 pixels, ten classes, 4 x 4 tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

SIZE = {"img_size": 32, "num_classes": 10}
SMALL = {**SIZE, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}


def timm(name: str, **changes: Any) -> Callable[[], nn.Module]:
    """A model of timm by the name of its class and file."""

    def build() -> nn.Module:
        import importlib

        file, cls = name.split(".")
        return getattr(importlib.import_module(f"timm.models.{file}"), cls)(**changes)

    return build


def res_mlp() -> nn.Module:
    from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock

    small = {**SIZE, "patch_size": 8, "num_blocks": 2, "embed_dim": 48, "mlp_ratio": 4}
    return MlpMixer(**small, block_layer=ResBlock, norm_layer=Affine)


def torchvision_vit() -> nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(32, 8, num_layers=2, num_heads=4, hidden_dim=48, mlp_dim=192, num_classes=10)
    nn.init.normal_(model.heads.head.weight)  # torchvision's own zeros would make all logits equal
    return model


HF = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}


def hugging_face(name: str, **changes: Any) -> Callable[[], nn.Module]:
    """`ForImageClassification` of a family of transformers."""

    def build() -> nn.Module:
        transformers = pytest.importorskip("transformers", reason="no transformers: make test-libraries")
        config = getattr(transformers, f"{name}Config")(**changes, num_labels=10, attn_implementation="eager")
        return getattr(transformers, f"{name}ForImageClassification")(config)

    return build


class Encoder(nn.Module):
    """PyTorch's encoder in a model of somebody's own."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, 8)
        layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.patches(x).flatten(2).mT).mean(1))


EVA = {**SMALL, "mlp_ratio": 2.0}
SWIN = {**SIZE, "patch_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4), "window_size": 4}
ZOO: dict[str, Callable[[], nn.Module]] = {
    "timm ViT": timm("vision_transformer.VisionTransformer", **SMALL),
    "timm ViT mean": timm("vision_transformer.VisionTransformer", **SMALL, class_token=False, global_pool="avg"),
    "timm ViT registers, layer scale": timm(
        "vision_transformer.VisionTransformer", **SMALL, reg_tokens=2, init_values=1e-5, no_embed_class=True
    ),
    "timm ViT qk-norm": timm("vision_transformer.VisionTransformer", **SMALL, qk_norm=True),
    "timm ViT no positions": timm("vision_transformer.VisionTransformer", **SMALL, pos_embed="none"),
    "timm ViT scale norm": timm("vision_transformer.VisionTransformer", **SMALL, scale_attn_norm=True),
    "timm DeiT distilled": timm("deit.VisionTransformerDistilled", **SMALL),
    "timm ConViT": timm("convit.ConVit", **{**SMALL, "embed_dim": 12}, local_up_to_layer=1),
    "timm ConvMixer": timm("convmixer.ConvMixer", dim=24, depth=2, kernel_size=3, patch_size=4, num_classes=10),
    "timm MLP-Mixer": timm("mlp_mixer.MlpMixer", **SIZE, patch_size=8, num_blocks=2, embed_dim=48),
    "timm ResMLP": res_mlp,
    "timm BEiT": timm(
        "beit.Beit", **SMALL, qkv_bias=True, init_values=0.1, use_abs_pos_emb=False, use_rel_pos_bias=True
    ),
    "timm BEiT positions": timm("beit.Beit", **SMALL, qkv_bias=True, use_abs_pos_emb=True),
    "timm EVA": timm("eva.Eva", **EVA),
    "timm EVA rotary": timm("eva.Eva", **EVA, use_rot_pos_emb=True, use_abs_pos_emb=False, qkv_fused=False),
    "timm Swin": timm("swin_transformer.SwinTransformer", **SWIN),
    "torchvision ViT": torchvision_vit,
    "Hugging Face ViT": hugging_face("ViT", **HF, intermediate_size=192),
    "Hugging Face DeiT": hugging_face("DeiT", **HF, intermediate_size=192),
    "Hugging Face DINOv2": hugging_face("Dinov2", **HF),
    "nn.TransformerEncoder": Encoder,
}


def build(name: str, seed: int = 0) -> Any:
    """The model, evaluated, from a global seed that stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ZOO[name]().eval()


@torch.no_grad()
def logits(model: nn.Module) -> Any:
    """Outputs on three images."""
    out = model(torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    return getattr(out, "logits", out)
