"""Small models of many families and libraries, as their users make them; 32 x 32 pixels, ten classes, 4 x 4 tokens."""

from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

TABLE = yaml.safe_load(Path(__file__).with_name("zoo.yaml").read_bytes())


def timm(fields):
    """A model of timm by the name of its class and file."""
    file, cls = fields["timm"].split(".")
    others = {name: value for name, value in fields.items() if name != "timm"}
    return getattr(import_module(f"timm.models.{file}"), cls)(**others)


def res_mlp():
    from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock

    small = yaml.safe_load("{img_size: 32, num_classes: 10, patch_size: 8, num_blocks: 2, embed_dim: 48, mlp_ratio: 4}")
    return MlpMixer(**small, block_layer=ResBlock, norm_layer=Affine)


def torchvision_vit():
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(32, 8, num_layers=2, num_heads=4, hidden_dim=48, mlp_dim=192, num_classes=10)
    nn.init.normal_(model.heads.head.weight)  # torchvision's own zeros would make all logits equal
    return model


HF = yaml.safe_load("{hidden_size: 48, num_hidden_layers: 2, num_attention_heads: 4, image_size: 32, patch_size: 8}")


def hugging_face(name, **changes):
    """`ForImageClassification` of a family of transformers."""

    def build():
        transformers = pytest.importorskip("transformers", reason="no transformers: make test-libraries")
        config = getattr(transformers, f"{name}Config")(**changes, num_labels=10, attn_implementation="eager")
        return getattr(transformers, f"{name}ForImageClassification")(config)

    return build


class Encoder(nn.Module):
    """PyTorch's encoder in a model of somebody's own."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 48, 8, 8)
        layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.encoder(self.patches(x).flatten(2).mT).mean(1))


OTHERS = {
    "timm ResMLP": res_mlp,
    "torchvision ViT": torchvision_vit,
    "Hugging Face ViT": hugging_face("ViT", **HF, intermediate_size=192),
    "Hugging Face DeiT": hugging_face("DeiT", **HF, intermediate_size=192),
    "Hugging Face DINOv2": hugging_face("Dinov2", **HF),
    "nn.TransformerEncoder": Encoder,
}
ZOO = {name: partial(timm, fields) if fields else OTHERS[name] for name, fields in TABLE.items()}


def build(name, seed=0):
    """The model, evaluated, from a global seed that stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ZOO[name]().eval()


@torch.no_grad()
def logits(model):
    """Outputs on three images."""
    out = model(torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    return getattr(out, "logits", out)
