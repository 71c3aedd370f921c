"""Contract of every model family; a new file in benchmark/models, and one of a package, is tested with no edit."""

import sys

import pytest
import torch
from torch.nn import functional as F

from tests.operations import operations
from vitinit.benchmark.grids.grid import resolve_model
from vitinit.benchmark.models.build import build_model, has_batch_norm, parameter_count
from vitinit.benchmark.models.named import NamedModel
from vitinit.benchmark.models.registry import families, presets
from vitinit.benchmark.spec import model_spec
from vitinit.initializers import registry
from vitinit.initializers.attention import attention_layers, has_attention, seen_grids
from vitinit.initializers.diagnostics import mean_attention
from vitinit.initializers.streams import stream

CLASSES, SIDE, PATCH = 10, 32, 4
IMAGES_BCHW = torch.randn(4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def at(name, **fields):
    return resolve_model({"preset": name, "image_size": SIDE, "patch_size": PATCH, **fields})


def smallest(arch, **fields):
    """The smallest preset of a family."""
    return at(next(iter(families()[arch].presets)), **fields)


def initialised(spec, dense=False, std=0.02):
    model = build_model(spec, CLASSES, dense)
    registry.build("trunc_normal", {"std": std}).apply(model, torch.Generator().manual_seed(0), registry.Job())
    return model.eval()


MILLIONS = {"convit": [14, 737, 3573, 11121], "convmixer": [12, 71, 208], "vit": [13, 718, 2796, 11027]}
"""Operations of each preset; those of a family that is not listed are not pinned."""
each_family = pytest.mark.parametrize("arch", [name for name, family in families().items() if not family.by_name])


@each_family
def test_presets_are_built_at_32_pixels_the_smallest_first(arch, undrawn):
    found = {name: round(operations(at(name)) / 1e6) for name in families()[arch].presets}
    assert smallest(arch) == at(min(found, key=found.__getitem__))
    assert list(found.values()) == MILLIONS.get(arch, list(found.values()))
    for name, fields in families()[arch].presets.items():
        assert not {"image_size", "patch_size", "arch"} & fields.keys()
        assert presets()[name]["arch"] == arch
        assert has_batch_norm(at(name)) is at(name).batch_norm, "it classifies, and says what it has"


@each_family
def test_attention_and_batch_norm_are_as_the_spec_says(arch):
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


# --- models that predict a class for every pixel ---


@pytest.mark.parametrize("arch", [name for name, family in families().items() if family.dense])
def test_every_dense_family_predicts_every_pixel_with_the_parameters_that_it_has(arch):
    spec = smallest(arch)
    model, classifier = initialised(spec, dense=True), initialised(spec)
    assert model.state_dict().keys() == classifier.state_dict().keys()
    for (name, ours), (same, theirs) in zip(model.named_parameters(), classifier.named_parameters(), strict=True):
        assert (name, torch.equal(ours, theirs)) == (same, True), "a base sets the same weights"
    output = model.train()(IMAGES_BCHW)
    assert output.shape == (4, SIDE, SIDE, CLASSES)
    output.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters()), "else processes wait for its gradient"


@pytest.mark.parametrize("fields", [{}, {"pool": "token", "position": "learned"}, {"layer_scale": 0.1}])
def test_the_head_is_a_product_for_each_token_then_bilinear(fields):
    model, last = initialised(smallest("vit", **fields), True, 0.2), []
    model.blocks[-1].register_forward_hook(lambda _, __, output: last.append(output))
    with torch.no_grad():
        found = model(IMAGES_BCHW)
        norm = model.norm if fields.get("pool") == "token" else model.fc_norm
        normed_BND = F.layer_norm(last[0], last[0].shape[-1:], norm.weight, norm.bias, norm.eps)
        logits_BNK = normed_BND[:, -((SIDE // PATCH) ** 2) :] @ model.head.weight.T + model.head.bias
        grid = logits_BNK.mT.unflatten(2, (SIDE // PATCH, SIDE // PATCH))
        expected = F.interpolate(grid, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    torch.testing.assert_close(found, expected.permute(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


# --- models by name: timm's and anybody's, checked and counted by building them, each its own run ---

SMALL = {"timm": "vit_tiny_patch16_224", "img_size": 16, "patch_size": 4, "embed_dim": 48, "depth": 2, "num_heads": 3}
MODEL = """
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self, num_classes: int, img_size: int, width: int = 8, rates: list[float] = [0.1]) -> None:
        super().__init__()
        self.rate = torch.linspace(0, rates[0], 3)[1].item()  # reads a value, which meta tensors do not have
        self.body = nn.Linear(3 * img_size**2, width)
        self.own_scale = nn.Parameter(torch.rand(width))
        self.head = nn.Linear(width, num_classes)

    def forward(self, images):
        return self.head(self.body(images.flatten(1)) * self.own_scale)


def two_outputs(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16**2, 7))
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "somebodys.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    yield "somebodys"
    sys.modules.pop("somebodys", None)


def named(fields):
    model = resolve_model(fields)
    assert isinstance(model, NamedModel)
    return model


def test_what_is_counted_is_what_a_preset_of_the_same_fields_has():
    model = named(SMALL)
    fields = {"arch": "vit", "image_size": 16, "patch_size": 4, "width": 48, "depth": 2, "heads": 3}
    ours = model_spec({**fields, "position": "learned", "pool": "token"})
    assert operations(model) == operations(ours)
    assert parameter_count(build_model(model, 10)) == parameter_count(build_model(ours, 10))
    assert (model.batch_norm, named({"timm": "resnet18", "img_size": 32}).batch_norm) == (False, True)
    assert model_spec(model.model_dump(mode="json")) == model


def test_an_image_size_that_is_not_given_is_timms():
    assert named({"timm": "vit_tiny_patch16_384"}).image_size == 384


def test_a_class_of_a_package_is_built_with_the_classes_and_the_image_size(package):
    model = named({"python": f"{package}:Small", "image_size": 16, "args": {"width": 4}})
    built = build_model(model, 7)
    assert built(torch.zeros(2, 3, 16, 16)).shape == (2, 7)
    assert operations(model) == 2 * (3 * 16**2 * 4 + 4 * 10)
    assert parameter_count(built) == (3 * 16**2 + 1) * 4 + 4 + 5 * 7


def test_a_base_leaves_what_no_rule_covers_as_it_was_built(package):
    model = named({"python": f"{package}:Small", "image_size": 16})
    base = registry.build("kaiming_uniform", {}, "base")
    first, again, other = (build_model(model, 7, seed=seed) for seed in (0, 0, 1))
    drawn = first.own_scale.clone()
    assert torch.equal(again.own_scale, drawn)
    assert not torch.equal(other.own_scale, drawn)
    body = first.body.weight.clone()
    base.apply(first, stream(0, "init/base"), registry.Job())
    assert torch.equal(first.own_scale, drawn)
    assert not torch.equal(first.body.weight, body)
