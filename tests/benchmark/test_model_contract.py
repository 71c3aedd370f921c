"""Contract of every model family; a new file in benchmark/models, and one of a package, is tested with no edit."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.operations import operations
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.models.build import build_model, has_batch_norm
from vitinit.benchmark.models.family import ModelSpec
from vitinit.benchmark.models.registry import families, presets
from vitinit.initializers import registry
from vitinit.initializers.attention import attention_layers, has_attention, seen_grids
from vitinit.initializers.diagnostics import mean_attention

IMAGES_BCHW = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def at(name: str, **fields: Any) -> ModelSpec:
    return resolve_model({"preset": name, "image_size": 32, "patch_size": 4, **fields})


def smallest(arch: str, **fields: Any) -> ModelSpec:
    """The smallest preset of a family."""
    return at(next(iter(families()[arch].presets)), **fields)


def initialised(spec: ModelSpec) -> nn.Module:
    model = build_model(spec, 10)
    registry.build("trunc_normal", {}).apply(model, torch.Generator().manual_seed(0), lambda done, total: None)
    return model


MILLIONS = {"convit": [14, 737, 3573, 11121], "convmixer": [12, 71, 208], "vit": [13, 718, 2796, 11027]}
"""Operations of each preset; those of a family that is not listed are not pinned."""
each_family = pytest.mark.parametrize("arch", [name for name, family in families().items() if not family.by_name])


@each_family
def test_presets_are_built_at_32_pixels_the_smallest_first(arch: str, undrawn) -> None:
    found = {name: round(operations(at(name)) / 1e6) for name in families()[arch].presets}
    assert smallest(arch) == at(min(found, key=found.__getitem__))
    assert list(found.values()) == MILLIONS.get(arch, list(found.values()))
    for name, fields in families()[arch].presets.items():
        assert not {"image_size", "patch_size", "arch"} & fields.keys()
        assert presets()[name]["arch"] == arch
        assert has_batch_norm(at(name)) is at(name).batch_norm, "it classifies, and says what it has"


@each_family
def test_attention_and_batch_norm_are_as_the_spec_says(arch: str) -> None:
    spec = smallest(arch)
    model = initialised(spec)
    layers = zip(attention_layers(model), seen_grids(model), strict=True) if has_attention(model) else ()
    kinds = {(layer.heads, *grid) for layer, grid in layers}
    assert (spec.attention_maps is not None) == (len(kinds) == 1 and next(iter(kinds))[1:] == (spec.grid, spec.grid))
    if spec.attention_maps:
        assert mean_attention(model, IMAGES_BCHW[:1]).shape == spec.attention_maps
    gated = [block for block in model.modules() if hasattr(block, "gating_param")]
    assert len(gated) == spec.gated_layers
    assert str(spec.width) in spec.describe()
    model.train()
    with torch.no_grad():
        alone, among_others = model(IMAGES_BCHW[:2])[0], model(IMAGES_BCHW)[0]
    assert torch.allclose(alone, among_others, atol=1e-5) is not spec.batch_norm, "images depend on one another"
