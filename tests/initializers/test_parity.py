"""The same ViT in four libraries: the same weights give the same function, and so does the same seed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import zoo
from small_models import images
from torch import Tensor

import vitinit

LAYER = r"vit\.(?:encoder\.)?layers?\.(\d+)"
NAMES = {
    "torchvision ViT": {
        r"class_token": "cls_token",
        r"encoder\.pos_embedding": "pos_embed",
        r"conv_proj\.(.*)": r"patch_embed.proj.\1",
        r"encoder\.layers\.encoder_layer_(\d+)\.ln_(\d)\.(.*)": r"blocks.\1.norm\2.\3",
        r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.in_proj_(.*)": r"blocks.\1.attn.qkv.\2",
        r"encoder\.layers\.encoder_layer_(\d+)\.self_attention\.out_proj\.(.*)": r"blocks.\1.attn.proj.\2",
        r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.0\.(.*)": r"blocks.\1.mlp.fc1.\2",
        r"encoder\.layers\.encoder_layer_(\d+)\.mlp\.3\.(.*)": r"blocks.\1.mlp.fc2.\2",
        r"encoder\.ln\.(.*)": r"norm.\1",
        r"heads\.head\.(.*)": r"head.\1",
    },
    "Hugging Face ViT": {
        r"vit\.embeddings\.cls_token": "cls_token",
        r"vit\.embeddings\.position_embeddings": "pos_embed",
        r"vit\.embeddings\.patch_embeddings\.projection\.(.*)": r"patch_embed.proj.\1",
        LAYER + r"\.layernorm_before\.(.*)": r"blocks.\1.norm1.\2",
        LAYER + r"\.layernorm_after\.(.*)": r"blocks.\1.norm2.\2",
        LAYER + r"\.attention\.(?:attention\.)?(?:q_proj|query)\.(.*)": r"blocks.\1.attn.q.\2",
        LAYER + r"\.attention\.(?:attention\.)?(?:k_proj|key)\.(.*)": r"blocks.\1.attn.k.\2",
        LAYER + r"\.attention\.(?:attention\.)?(?:v_proj|value)\.(.*)": r"blocks.\1.attn.v.\2",
        LAYER + r"\.attention\.(?:o_proj|output\.dense)\.(.*)": r"blocks.\1.attn.proj.\2",
        LAYER + r"\.(?:mlp\.fc1|intermediate\.dense)\.(.*)": r"blocks.\1.mlp.fc1.\2",
        LAYER + r"\.(?:mlp\.fc2|output\.dense)\.(.*)": r"blocks.\1.mlp.fc2.\2",
        r"vit\.layernorm\.(.*)": r"norm.\1",
        r"classifier\.(.*)": r"head.\1",
    },
}


def at_home(model: Any) -> dict[str, Tensor]:
    """timm's parameters by name, W_q, W_k and W_v also on their own."""
    found = dict(model.named_parameters())
    for name, fused in list(found.items()):
        if ".attn.qkv." in name:
            for letter, part in zip("qkv", fused.detach().chunk(3), strict=True):
                found[name.replace("qkv", letter)] = part
    return found


def pairs(name: str, model: Any, timm: Any) -> list[tuple[Tensor, Tensor]]:
    home, found = at_home(timm), []
    for theirs, parameter in model.named_parameters():
        patterns = [(p, to) for p, to in NAMES[name].items() if re.fullmatch(p, theirs)]
        assert len(patterns) == 1, theirs
        found.append((parameter, home[re.sub(*patterns[0], theirs)]))
    assert len(found) >= len(list(timm.parameters()))
    return found


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        out = model(images(3))
    return getattr(out, "logits", out)


def same_epsilon(model: Any) -> Any:
    """Libraries differ in the epsilon of their norms, which is no weight."""
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6
    return model


CELLS = [("kaiming_uniform", "mimetic"), ("trunc_normal", "impulse"), ("kaiming_uniform", "conditioned")]
OF_MATRICES = [(base, None) for base in ("jax_vit", "orthogonal")]
"""They draw by the shapes of W_q, W_k and W_v, which some libraries hold as one matrix."""


@pytest.mark.parametrize(("base", "method"), [*CELLS, *OF_MATRICES])
@pytest.mark.parametrize("name", NAMES)
def test_one_seed_is_one_function_in_every_library(name: str, base: str, method: str | None) -> None:
    model, timm = same_epsilon(zoo.build(name, 1)), same_epsilon(zoo.build("timm ViT", 2))
    for one in (model, timm):
        vitinit.initialize(one, method, base=base, seed=5)
    for ours, theirs in pairs(name, model, timm):
        assert torch.equal(ours, theirs)
    assert logits(timm).std() > 0.01 or base == "jax_vit", "whose head starts at 0"
    torch.testing.assert_close(logits(model), logits(timm), atol=1e-5, rtol=0)
