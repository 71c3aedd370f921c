"""Contract of every model family, of a new file and of a package with no edit; what fits it."""

import copy
import sys

import numpy as np
import pytest
import timm
import torch
from timm.models.convit import GPSA, MHSA
from torch.nn import functional as F

from vitinit.benchmark.grids.grid import misfit, resolve_initializer, resolve_model
from vitinit.benchmark.models.build import (
    build_model,
    halve_residuals,
    has_batch_norm,
    parameter_count,
    without_values,
)
from vitinit.benchmark.models.named import NamedModel
from vitinit.benchmark.models.registry import families, presets
from vitinit.benchmark.spec import InitializerSpec, model_spec
from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.attention import attention_layers, seen_grids, survey
from vitinit.initializers.diagnostics import measured
from vitinit.initializers.errors import VitinitError
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


each_family = pytest.mark.parametrize("arch", [name for name, family in families().items() if not family.by_name])


@each_family
def test_presets_are_built_at_32_pixels_the_smallest_first(arch, monkeypatch):
    # drawing weights, which have no values here, takes ten times as long as all else
    monkeypatch.setattr("timm.layers.weight_init._trunc_normal_", lambda tensor, *_: tensor)
    counts = {name: parameter_count(without_values(at(name))) for name in families()[arch].presets}
    assert smallest(arch) == at(min(counts, key=counts.__getitem__))
    for name, fields in families()[arch].presets.items():
        assert not {"image_size", "patch_size", "arch"} & fields.keys()
        assert presets()[name]["arch"] == arch
        assert has_batch_norm(at(name)) is at(name).batch_norm, "it classifies, and says what it has"


@each_family
def test_attention_and_batch_norm_are_as_the_spec_says_and_a_step_trains_every_parameter(arch):
    spec = smallest(arch)
    model = initialised(spec)
    layers = zip(attention_layers(model), seen_grids(model), strict=True) if survey(model).layers else ()
    kinds = {(layer.heads, *grid) for layer, grid in layers}
    assert (spec.attention_maps is not None) == (len(kinds) == 1 and next(iter(kinds))[1:] == (spec.grid, spec.grid))
    if spec.attention_maps:
        assert torch.stack(measured(model, IMAGES_BCHW[:1]).maps).shape == spec.attention_maps
    assert len([block for block in model.modules() if hasattr(block, "gating_param")]) == spec.gated_layers
    assert str(spec.width) in spec.describe()
    model.train()
    alone, among_others = model(IMAGES_BCHW[:2])[0], model(IMAGES_BCHW)[0]
    assert torch.allclose(alone, among_others, atol=1e-5) is not spec.batch_norm, "images depend on one another"
    among_others.square().sum().backward()
    torch.optim.AdamW(model.parameters()).step()
    assert all(parameter.grad is not None and parameter.isfinite().all() for parameter in model.parameters())


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
        scores_BHWK = model(IMAGES_BCHW)
        norm = model.norm if fields.get("pool") == "token" else model.fc_norm
        normed_BND = F.layer_norm(last[0], last[0].shape[-1:], norm.weight, norm.bias, norm.eps)
        logits_BNK = normed_BND[:, -((SIDE // PATCH) ** 2) :] @ model.head.weight.T + model.head.bias
        grid = logits_BNK.mT.unflatten(2, (SIDE // PATCH, SIDE // PATCH))
        expected = F.interpolate(grid, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    torch.testing.assert_close(scores_BHWK, expected.permute(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


# --- models by name: timm's and anybody's, checked and counted by building them, each its own run ---

SMALL = {"timm": "vit_tiny_patch16_224", "img_size": 16, "patch_size": 4, "embed_dim": 48, "depth": 2, "num_heads": 3}
MODEL = """
import random
import numpy as np
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self, num_classes: int, img_size: int, width: int = 8, rates: list[float] = [0.1]) -> None:
        super().__init__()
        self.rate = torch.linspace(0, rates[0], 3)[1].item()  # reads a value, which meta tensors do not have
        self.body = nn.Linear(3 * img_size**2, width)
        self.own_scale = nn.Parameter(torch.rand(width) + np.random.rand() + random.random())
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


def test_a_model_by_name_has_the_parameters_of_a_preset_of_the_same_fields():
    model = named(SMALL)
    fields = {"arch": "vit", "image_size": 16, "patch_size": 4, "width": 48, "depth": 2, "heads": 3}
    ours = model_spec({**fields, "position": "learned", "pool": "token"})
    by_name, of_preset = ([value.shape for value in build_model(spec, 10).parameters()] for spec in (model, ours))
    assert by_name == of_preset
    assert (model.batch_norm, named({"timm": "resnet18", "img_size": 32}).batch_norm) == (False, True)
    assert model_spec(model.model_dump(mode="json")) == model


def test_an_image_size_that_is_not_given_is_timms():
    assert named({"timm": "vit_tiny_patch16_384"}).image_size == 384


def test_a_class_of_a_package_is_built_with_the_classes_and_the_image_size(package):
    built = build_model(named({"python": f"{package}:Small", "image_size": 16, "args": {"width": 4}}), 7)
    assert built(torch.zeros(2, 3, 16, 16)).shape == (2, 7)
    assert parameter_count(built) == (3 * 16**2 + 1) * 4 + 4 + 5 * 7


def test_a_base_leaves_what_no_rule_covers_as_it_was_built(package):
    base = registry.build("kaiming_uniform", {}, "base")
    first, again, other = (
        build_model(named({"python": f"{package}:Small", "image_size": 16}), 7, seed=seed) for seed in (0, 0, 1)
    )
    drawn = first.own_scale.clone()
    assert torch.equal(again.own_scale, drawn)
    assert not torch.equal(other.own_scale, drawn)
    body = first.body.weight.clone()
    base.apply(first, stream(0, "init/base"), registry.Job())
    assert torch.equal(first.own_scale, drawn)
    assert not torch.equal(first.body.weight, body)


# --- against paper-facts 1.6 and 4 and against timm's own factories ---


@pytest.mark.parametrize(("side", "width"), [(4, 24), (3, 8)])
def test_sincos_embedding_equals_the_formula(side, width):
    m = build_model(at("vit_micro", image_size=4 * side, width=width, heads=2, pool="token"), 10).eval()
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
    spec = at("vit_tiny", image_size=224, patch_size=16, position="learned", pool="token")
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    for scale in (None, 1e-5):
        ours = build_model(spec.model_copy(update={"layer_scale": scale}), 1000).eval()
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
    ours = build_model(at("convit_micro", image_size=16, width=24, qkv_bias=True), 10).double()
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


@pytest.mark.parametrize("arch", ["vit", "convit"])
def test_half_residuals_and_norms_have_the_type_of_autocast_and_without_it_nothing_changes(arch):
    models, types = [initialised(smallest(arch)) for _ in range(2)], [set(), set()]
    halve_residuals(models[1])
    logits = torch.stack([model(IMAGES_BCHW) for model in models])
    assert torch.equal(*logits)
    for model, seen in zip(models, types, strict=True):
        for module in (*model.blocks, *(block.norm1 for block in model.blocks)):
            module.register_forward_hook(lambda _, __, out, seen=seen: seen.add(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = torch.stack([model(IMAGES_BCHW) for model in models])
    assert types == [{torch.float32}, {torch.bfloat16}]
    torch.testing.assert_close(rounded.float(), logits, rtol=0.05, atol=0.02)


# --- initialisers that fit ---


@pytest.mark.parametrize("arch", ["convit", "convmixer", "vit"])
def test_what_is_said_to_fit_is_carried_out_and_what_is_not_is_refused(arch):
    spec = resolve_model({"preset": f"{arch}_micro", "image_size": 32, "patch_size": 4})
    model = build_model(spec, 10)
    for name in registry.names():
        verdict = misfit(spec, resolve_initializer({"name": name}).model_dump_json())
        part = registry.build(name, {"steps": 1, "strings": 2, "batch_size": 2} if name == "procedural" else {})
        base, method = (part, None) if part.kind == "base" else (registry.build("trunc_normal", {}), part)
        if verdict:
            with pytest.raises(VitinitError) as refused:
                initialize_run(model, base, method, lambda named: stream(0, named))
            assert verdict == str(refused.value).replace(type(model).__name__, spec.label)
            assert misfit(spec, InitializerSpec(name=name).model_dump_json()) == verdict
        else:  # without what a record measures, which takes the longest
            for initializer in filter(None, (base, method)):
                initializer.check(model)
                with torch.no_grad():
                    initializer.apply(model, stream(0, name), registry.Job(training_images=lambda _: IMAGES_BCHW))
            assert model(IMAGES_BCHW).isfinite().all()
        model.requires_grad_()  # some methods freeze what they set
