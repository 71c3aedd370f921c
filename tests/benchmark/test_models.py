"""Models against paper-facts 1.6 and 4 and against timm's own factories."""

import copy

import numpy as np
import pytest
import timm
import torch
from timm.models.convit import GPSA, MHSA

from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.convit import ConViT
from vitinit.benchmark.models.registry import presets
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.spec import model_spec
from vitinit.initializers import registry

SMALL = ViT(image_size=16, patch_size=4, width=24, depth=2, heads=3)
SMALL_CONVIT = ConViT(
    image_size=16,
    patch_size=4,
    width=24,
    depth=3,
    heads=4,
    qkv_bias=False,
    gpsa_layers=2,
)


def changed(spec, **fields):
    return model_spec({**spec.model_dump(), **fields})


def preset(name, **fields):
    return model_spec({**presets()[name], **fields})


@pytest.mark.parametrize(("side", "width"), [(4, 24), (3, 8)])
def test_sincos_embedding_equals_the_formula(side, width):
    m = build_model(changed(SMALL, image_size=4 * side, width=width, heads=2, pool="token"), 10).eval()
    assert "pos_embed" not in dict(m.named_parameters())
    bands = 10000.0 ** (-np.arange(width // 4) / (width // 4))
    y, x = (each.reshape(-1, 1) * bands for each in np.indices((side, side)))  # tokens are row-major
    expected = np.concatenate([np.sin(y), np.sin(x), np.cos(y), np.cos(x)], axis=1)
    np.testing.assert_allclose(m.pos_embed.double().numpy(), expected[None], atol=1e-6)
    torch.nn.init.ones_(m.cls_token)  # a model has no values before it is initialised
    with torch.no_grad():  # a class token has no position
        tokens = m._pos_embed(torch.zeros(1, side * side, width))
    torch.testing.assert_close(tokens[0], torch.cat([m.cls_token[0], m.pos_embed[0]]))


def test_vit_tiny_with_learned_positions_and_class_token_is_timms():
    spec = preset("vit_tiny", image_size=224, patch_size=16, position="learned", pool="token")
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    for scale in (None, 1e-5):
        ours = build_model(changed(spec, layer_scale=scale), 1000).eval()
        theirs = timm.create_model("vit_tiny_patch16_224", init_values=scale).eval()
        scales = [{name: value for name, value in m.named_parameters() if "gamma" in name} for m in (ours, theirs)]
        torch.testing.assert_close(*scales)
        assert len(scales[0]) == (2 * 12 if scale else 0)
        ours.load_state_dict(theirs.state_dict())
        with torch.no_grad():
            torch.testing.assert_close(ours(images), theirs(images))


@pytest.mark.parametrize("gate", [-2.0, 1.0])
def test_convit_computes_what_timms_does_gradients_too(gate):
    """timm's mixes both attentions before they meet the values; so here in float64, where only rounding differs."""
    spec = changed(SMALL_CONVIT, qkv_bias=True)
    ours = build_model(spec, 10).double()
    registry.build("trunc_normal", {}).apply(ours, torch.Generator().manual_seed(0), registry.Job())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if name.endswith(("pos_proj.weight", "qk.weight", "qkv.weight")):
                parameter.mul_(40)  # attention that is far from uniform
            if name.endswith("gating_param"):
                parameter.fill_(gate)
    theirs = copy.deepcopy(ours)
    for block in theirs.blocks:
        block.attn.__class__ = GPSA if block.use_gpsa else MHSA
    images = torch.randn(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    outputs = [m(images) for m in (ours, theirs)]
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-12)
    for output in outputs:
        output.square().sum().backward()
    for (name, parameter), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-8, atol=1e-12, msg=name)
