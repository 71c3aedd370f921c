"""A model at another resolution: 8 x 8 tokens become 12 x 12, and the weights mean the same there."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from timm.models.convit import ConVit
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from benchmark.models.build import at_image_size, build_model
from benchmark.models.family import ModelSpec
from benchmark.models.registry import presets, spec_of
from initializers import registry
from initializers.attention import attention_layers
from initializers.initialize import initialize
from initializers.initialize import offset_maps as offset_maps_of
from runners.basics.streams import stream

CONVIT = spec_of({**presets()["convit_micro"], "image_size": 32, "patch_size": 4, "width": 54, "heads": 9})
VIT = spec_of({**presets()["vit_micro"], "image_size": 32, "patch_size": 4})
IMAGES_BCHW = torch.randn(2, 3, 48, 48, generator=torch.Generator().manual_seed(0))


def initialised(spec: ModelSpec, method: str | None = None) -> nn.Module:
    model = build_model(spec, 10)
    built = registry.build(method, {}, "method") if method else None
    initialize(model, registry.build("trunc_normal", {}), built, lambda name: stream(0, name))
    return model


@torch.no_grad()
def test_convit_is_timms_with_timms_resampling_of_its_positions() -> None:
    model = initialised(CONVIT, "convit_gpsa")
    theirs = ConVit(img_size=48, patch_size=4, num_classes=10, embed_dim=6, depth=3, num_heads=9, local_up_to_layer=2)
    state = dict(model.state_dict())
    square = state["pos_embed"].reshape(1, 8, 8, 54).permute(0, 3, 1, 2)
    larger = nn.functional.interpolate(square, (12, 12), mode="bicubic", antialias=True, align_corners=False)
    state["pos_embed"] = larger.permute(0, 2, 3, 1).reshape(1, 144, 54)
    theirs.load_state_dict(state)
    found = at_image_size(model, CONVIT, 48).eval()
    torch.testing.assert_close(found(IMAGES_BCHW), theirs.eval()(IMAGES_BCHW), rtol=0, atol=1e-6)


@torch.no_grad()
def test_a_gpsa_head_looks_at_the_same_offset_on_the_other_grid() -> None:
    """Head h1 + 3 h2 of a new ConViT at (row, column) offset (h1 - 1, h2 - 1), whatever the number of tokens."""
    model = initialised(CONVIT, "convit_gpsa")
    for resized, side in ((model, 8), (at_image_size(model, CONVIT, 48), 12)):
        layer = attention_layers(resized)[0]
        layer.module.gating_param.fill_(50.0)
        maps_HNN = layer.attention(torch.zeros(1, side**2, 54))[0]
        offsets = torch.tensor(offset_maps_of(maps_HNN, (side, side), 1)).flatten(1)
        assert offsets.argmax(1).tolist() == [0, 3, 6, 1, 4, 7, 2, 5, 8]


@torch.no_grad()
def test_a_model_that_has_seen_images_still_changes() -> None:
    """The offsets that timm keeps from the first image on are those of the new grid."""
    model = initialised(CONVIT, "convit_gpsa").eval()
    model(torch.zeros(1, 3, 32, 32))
    found = at_image_size(model, CONVIT, 48)
    assert found(IMAGES_BCHW).shape == (2, 10)
    assert found.blocks[0].attn.rel_indices.shape[1] == 144
    assert not found.training
    assert model.pos_embed.shape == (1, 64, 54), "the model itself is left as it was"


@torch.no_grad()
def test_sincos_positions_are_those_of_the_larger_grid() -> None:
    model = initialised(VIT)
    theirs = initialised(spec_of({**VIT.model_dump(), "image_size": 48}))
    torch.testing.assert_close(at_image_size(model, VIT, 48)(IMAGES_BCHW), theirs(IMAGES_BCHW), rtol=0, atol=0)


@torch.no_grad()
def test_scaled_positions_stay_scaled() -> None:
    """Impulse may multiply the embedding, and its weights are solved for that."""
    model = initialised(VIT)
    plain = at_image_size(model, VIT, 48).pos_embed
    model.pos_embed.mul_(18)
    torch.testing.assert_close(at_image_size(model, VIT, 48).pos_embed, 18 * plain)


def test_what_is_frozen_stays_frozen() -> None:
    model = initialised(CONVIT, "convit_gpsa")
    model.blocks[0].attn.gating_param.requires_grad_(False)
    found = {name for name, weight in at_image_size(model, CONVIT, 48).named_parameters() if not weight.requires_grad}
    assert found == {"blocks.0.attn.gating_param"}


@torch.no_grad()
def test_the_class_token_keeps_its_position() -> None:
    spec = spec_of({**VIT.model_dump(), "position": "learned", "pool": "token"})
    model = initialised(spec)
    found = at_image_size(model, spec, 48)
    theirs = VisionTransformer(img_size=32, patch_size=4, num_classes=10, embed_dim=48, depth=3, num_heads=4)
    theirs.load_state_dict(model.state_dict())
    theirs.set_input_size(img_size=48)
    torch.testing.assert_close(found.eval()(IMAGES_BCHW), theirs.eval()(IMAGES_BCHW), rtol=0, atol=1e-6)
    assert torch.equal(found.pos_embed[:, 0], model.pos_embed[:, 0])


def test_a_size_that_patches_do_not_fill_is_refused() -> None:
    with pytest.raises(ValidationError, match="50 is not divisible by patch_size 4"):
        at_image_size(initialised(VIT), VIT, 50)
