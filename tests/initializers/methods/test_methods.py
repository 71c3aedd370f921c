"""Methods against their formulas, tensor by tensor; all other tensors stay as they were."""

import math

import numpy as np
import pytest
import scipy.fft
import torch
from small_models import (
    ARCHS,
    CONVIT,
    CONVMIXER,
    VIT,
    applied,
    assert_normal,
    assert_uniform,
    differing,
    f64,
    generator,
    images,
    model,
    qkv_rows,
    state,
)
from timm.models.convit import GPSA
from torch import nn

import vitinit
from vitinit.initializers import registry
from vitinit.initializers.methods import procedural

WIDE = VIT.model_copy(update={"width": 60, "heads": 5})


def both(spec, name, **params):
    """The model before and after, with biases that are not zero."""
    before, after = (applied(model(spec), "kaiming_uniform", 9) for _ in range(2))
    return before, applied(after, name, **params)


def scaled(*ends, by, rows=None):
    """Multiply the first rows of these tensors of each block by a factor of its number."""

    def change(tensors):
        for name, value in tensors.items():
            if name.startswith("blocks.") and name.split(".", 2)[2] in ends:
                value[:rows] *= by(int(name.split(".")[1]))

    return change


LAST = ("attn.proj.weight", "mlp.fc2.weight")
BIASES = ("attn.proj.bias", "mlp.fc2.bias")


@pytest.mark.parametrize(
    ("spec", "name", "params", "change"),
    [
        (VIT, "zero_query", {}, scaled("attn.qkv.weight", "attn.qkv.bias", by=lambda _: 0, rows=48)),
        (CONVIT, "zero_branch", {}, scaled(*LAST, *BIASES, by=lambda _: 0)),
        (CONVIT, "depth_scaled", {}, scaled(*LAST, by=lambda block: (2 * block + 2) ** -0.5)),
        (CONVIT, "depth_scaled", {"rule": "gpt2"}, scaled(*LAST, by=lambda _: 6**-0.5)),
    ],
)
def test_tensors_are_scaled_as_stated_and_nothing_else_is(spec, name, params, change):
    before, after = both(spec, name, **params)
    expected = state(before)
    change(expected)
    torch.testing.assert_close(state(after), expected, rtol=1e-6, atol=0)


def named(spec, *ends):
    return {f"blocks.{i}.{end}.weight" for i in range(spec.depth) for end in ends}


def test_scaled_random_draws_attention_and_the_first_mlp_matrix_uniformly_and_clears_the_last():
    before, after = both(VIT, "scaled_random", scale=0.8)
    for block in after.blocks:
        for drawn in (*block.attn.qkv.weight.chunk(3), block.attn.proj.weight, block.mlp.fc1.weight):
            assert_uniform(f64(drawn), 0.8 * (3 / 48) ** 0.5)
        assert not block.mlp.fc2.weight.any()
    assert differing(state(before), state(after)) == named(VIT, "attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")


def test_logits_of_independent_tokens_have_the_critical_scale():
    """s^2 D = beta sqrt(ln N) for entries of variance s^2, and N = 64."""
    before, after = both(WIDE, "critical_scale", beta=1.2)
    for part in qkv_rows(after)[:2]:
        assert_normal(part, (1.2 * np.log(64) ** 0.5 / 60) ** 0.5)
    assert differing(state(before), state(after)) == named(WIDE, "attn.qkv")


def test_conditioned_rows_are_orthonormal_in_independent_heads_that_read_the_first_channels():
    query, key, value = qkv_rows(both(WIDE, "conditioned")[1], 1)
    heads = [*query, *key]
    for head in heads:
        np.testing.assert_allclose(head @ head.T, np.eye(12), atol=1e-6)
    between = [np.abs(a @ b.T).max() for i, a in enumerate(heads) for b in heads[:i]]
    assert min(between) > 0.05, "two heads would be orthogonal only if they were drawn together"
    assert max(between) < 0.9
    np.testing.assert_array_equal(value, [np.eye(12, 60)] * 5)


@pytest.mark.parametrize(("place", "matrix", "spec"), [(0, "query", VIT), (1, "key", WIDE), (2, "value", WIDE)])
def test_one_matrix_is_scipys_orthonormal_dct_and_the_rest_stays(place, matrix, spec):
    before, after = both(spec, "dct", matrix=matrix)
    for part, (old, new) in enumerate(zip(qkv_rows(before), qkv_rows(after), strict=True)):
        expected = scipy.fft.dct(np.eye(spec.width), norm="ortho", axis=0).reshape(old.shape) if part == place else old
        np.testing.assert_allclose(new, expected, atol=1e-6 * (part == place))
    assert differing(state(before), state(after)) == named(spec, "attn.qkv")


# --- mimetic against paper-facts 3, with the noise drawn again and everything else in numpy float64 ---


def noise(kind, width, g):
    """Z: N(0, 1/D), or uniform with that variance."""
    z, limit = torch.empty(width, width), (3 / width) ** 0.5
    return f64(z.normal_(0, width**-0.5, generator=g) if kind == "normal" else z.uniform_(-limit, limit, generator=g))


@pytest.mark.parametrize(
    ("changes", "kind", "strengths"),
    [
        ({}, "uniform", (0.5, 0.9, 0.2, 0.8)),
        ({"width": 160, "heads": 10, "depth": 1}, "normal", (0.7, 0.7, 0.4, 0.4)),  # factorised in another way
    ],
)
def test_products_are_the_papers_for_the_noise_that_was_drawn_and_factors_share_the_singular_values(
    changes, kind, strengths
):
    a_qk, b_qk, a_v, b_v = strengths
    asked = {"alpha_qk": a_qk, "beta_qk": b_qk, "alpha_vproj": a_v, "beta_vproj": b_v, "noise": kind}
    m, released = (
        applied(model(VIT, **changes), "mimetic", 7, **asked, vproj_order=order) for order in ("product", "released")
    )
    g, width, d = generator(7), m.embed_dim, m.embed_dim // m.blocks[0].attn.num_heads
    for layer, block in enumerate(m.blocks):
        query, key, value = qkv_rows(m, layer)
        for q, k in zip(query, key, strict=True):
            u, s, vt = np.linalg.svd(a_qk * noise(kind, width, g) + b_qk * np.eye(width))
            np.testing.assert_allclose(q.T @ k, (u[:, :d] * s[:d]) @ vt[:d], atol=2e-5)
            for factor in (q, k):
                np.testing.assert_allclose(factor @ factor.T, np.diag(s[:d]), atol=1e-4)
        value, proj = value.reshape(width, width), f64(block.attn.proj.weight)
        np.testing.assert_allclose(value.T @ proj.T, a_v * noise(kind, width, g) - b_v * np.eye(width), atol=2e-5)
        np.testing.assert_allclose(value @ value.T, proj.T @ proj, atol=5e-5)
        # the code released with arXiv 2404.01139 has the two factors the other way round
        np.testing.assert_array_equal(qkv_rows(released, layer)[2].reshape(width, width), value.T)
        np.testing.assert_array_equal(f64(released.blocks[layer].attn.proj.weight), proj.T)


# --- methods of one family: filters by the formulas of arXiv 2404.01139, ConViT's start by timm and paper-facts 4 ---


WIDTH = 600


def filters(kernel_size, **params):
    """The first layer's filters, D x f x f, whose biases are uniform within 1/f."""
    spec = CONVMIXER.model_copy(update={"kernel_size": kernel_size, "width": WIDTH, "depth": 1})
    layer = applied(model(spec), "conv_filters", **params).blocks[0][0].fn[0]
    assert_uniform(f64(layer.bias), 1 / kernel_size)
    return f64(layer.weight)[:, 0]


def test_random_filters_are_uniform():
    assert_uniform(filters(5, filter="random"), 1 / 5)


@pytest.mark.parametrize(("f", "n"), [(3, 1), (3, 9), (8, 3)])
def test_a_box_has_n_equal_entries_and_an_impulse_one(f, n):
    weight_DPQ = filters(f, filter="box", entries=n) if n > 1 else filters(f)
    assert ((weight_DPQ != 0).sum((1, 2)) == n).all()
    np.testing.assert_allclose(weight_DPQ[weight_DPQ != 0], math.sqrt(1 / (n * f)), rtol=1e-6)
    # each place is as likely as any other: within five standard deviations
    assert np.abs((weight_DPQ != 0).mean(0) - n / f**2).max() <= 5 * math.sqrt(n / f**2 * (1 - n / f**2) / WIDTH)


def test_gaussians_have_their_shape_a_place_for_a_centre_and_one_scale():
    f, s = 5, 0.3
    weight_DPQ, place = filters(f, filter="gaussian", variance=s), np.arange(f)
    bell = np.exp(-((place[:, None] - place) ** 2) / (2 * s))  # by distance from each centre
    centres = [np.unravel_index(weight.argmax(), (f, f)) for weight in weight_DPQ]
    assert len(set(centres)) == f**2
    unscaled_DPQ = np.stack([np.outer(bell[row], bell[column]) for row, column in centres])
    scale = math.sqrt((unscaled_DPQ**2).sum((1, 2)).mean() * f)  # as large as an impulse
    np.testing.assert_allclose(weight_DPQ, unscaled_DPQ / scale, rtol=1e-5, atol=1e-9)


# --- ConViT ---


WIDTHS = {1: 12, 4: 48, 9: 72}


def based(heads):
    """Over a base whose `pos_proj` has a bias."""
    return applied(model(CONVIT, heads=heads, width=WIDTHS[heads]), "kaiming_uniform", 99)


@pytest.mark.parametrize(("heads", "strength"), [(1, 1.0), (4, 0.5), (9, 1.0)])
def test_equals_timms_local_init(heads, strength):
    theirs = GPSA(WIDTHS[heads], num_heads=heads, locality_strength=strength)
    theirs.local_init()
    for block in applied(based(heads), "convit_gpsa", locality_strength=strength).blocks[:2]:
        for name in ("pos_proj.weight", "v.weight", "gating_param"):
            assert torch.equal(block.attn.get_parameter(name), theirs.get_parameter(name))
        assert not block.attn.pos_proj.bias.any()


GATED = {"train_gating": False, "gate": 0.0}
LOCAL = ("v.weight", "pos_proj.weight", "pos_proj.bias")
ALL = ("gating_param", *LOCAL, "qk.weight", "proj.weight", "proj.bias")


@pytest.mark.parametrize(
    ("switches", "sets", "keeps"),
    [
        ({}, LOCAL, ()),
        (GATED, ("gating_param", *LOCAL), ("gating_param",)),
        ({"conv_init": False}, (), ()),
        ({**GATED, "train_gpsa": False, "conv_init": False}, ("gating_param",), ALL),
    ],
)
def test_switches_of_table_3_change_and_freeze_what_they_name_and_nothing_else(switches, sets, keeps):
    m = based(9)
    report = vitinit.initialize(m, {"name": "convit_gpsa", **switches})
    changed, untrained = (
        {f"blocks.{layer}.attn.{part}" for layer in (0, 1) for part in parts} for parts in (sets, keeps)
    )
    assert {change.name for change in report.changes} == {"cls_token", *changed}
    assert set(report.untrained) == untrained
    assert m.blocks[1].attn.gating_param.any() != ("gate" in switches)


# --- methods that look at images: what each layer gives, by hooks and numpy of our own ---


def test_every_output_has_unit_variance_and_every_weight_is_a_scaled_orthonormal_matrix():
    m = applied(model(CONVIT), "kaiming_uniform")
    vitinit.initialize(m, "lsuv", batch=images(16))
    deviations = {}
    for name, part in m.named_modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            values = np.linalg.svd(f64(part.weight).reshape(len(part.weight), -1), compute_uv=False)
            np.testing.assert_allclose(values, values[0], rtol=1e-4, err_msg=name)
            assert part.bias is None or not part.bias.any()
            part.register_forward_hook(lambda _, __, out, name=name: deviations.update({name: f64(out).std()}))
    with torch.no_grad():
        m(images(16))
    assert len(deviations) > 5
    assert all(abs(std - 1) <= 0.1 + 1e-4 for std in deviations.values())


def test_two_layers_by_numpy():
    m = nn.Sequential(nn.Flatten(), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
    m.phases = nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))  # comes first, and says nothing of images
    data = 3 * torch.randn(16, 6, 1, 1, generator=generator(5)) + 1
    vitinit.initialize(m, {"name": "lsuv", "images": 16, "tolerance": 0.01, "tries": 2}, batch=data)
    x = f64(data).reshape(16, 6)
    for layer in (m[1], m[3]):
        weight = f64(layer.weight) / np.linalg.norm(f64(layer.weight), 2)
        weight /= (x @ weight.T).std()
        np.testing.assert_allclose(f64(layer.weight), weight, atol=1e-4)
        x = np.maximum(x @ weight.T, 0)


# --- whitened patches ---


@pytest.mark.parametrize(("arch", "epsilon"), [("vit", 0.1), ("convmixer", 1e-9), ("vit", 1e-9)])
def test_features_are_uncorrelated_and_of_known_variance_and_come_twice_with_both_signs(arch, epsilon):
    """E / sqrt(lambda + epsilon) makes variances of lambda / (lambda + epsilon), nearly 1 without epsilon."""
    m, batch = applied(model(ARCHS[arch]), "trunc_normal"), images(40)
    before = state(m)
    vitinit.initialize(m, {"name": "whitened_patches", "images": 40, "epsilon": epsilon}, batch=batch)
    name, conv = next((name, part) for name, part in m.named_modules() if isinstance(part, nn.Conv2d))
    weight, side = conv.weight.detach(), conv.kernel_size[0]
    own = weight[0].numel()
    cut = f64(batch).reshape(40, 3, 32 // side, side, 32 // side, side)
    patches = cut.transpose(0, 2, 4, 1, 3, 5).reshape(-1, own)
    features = patches @ f64(weight[:own]).reshape(-1, own).T
    values = np.linalg.eigvalsh(patches.T @ patches / len(patches))[::-1][: features.shape[1]]
    np.testing.assert_allclose(features.T @ features / len(features), np.diag(values / (values + epsilon)), atol=1e-3)
    doubled = weight[own : 2 * own]
    torch.testing.assert_close(doubled, -weight[: len(doubled)])
    assert differing(before, state(m)) == {f"{name}.weight"}
    assert torch.equal(weight[2 * own :], before[f"{name}.weight"][2 * own :]), "further rows keep their base"


# --- procedural warm-up: strings against a stack in Python, a step against AdamW's formula, and what stays ---


FEW = {"steps": 1, "strings": 8, "batch_size": 8, "kinds": 3}


@pytest.mark.parametrize("length", [16, 15])
def test_brackets_close_in_the_reverse_order_of_their_opening(length):
    kinds, count = 3, 400
    deepest = 0
    for string in procedural.brackets(count, length, kinds, 0.6, generator(0)).tolist():
        stack = []
        for symbol in string:
            if symbol < kinds:
                stack.append(symbol)
                deepest = max(deepest, len(stack))
            else:
                assert stack.pop() == symbol - kinds
        assert len(stack) == length % 2
    assert deepest > 4


def test_the_first_step_is_adamws_and_of_blocks_alone():
    m = model(VIT)
    before = state(m)
    registry.build("procedural", {**FEW, "lr": 1e-3, "weight_decay": 0.5}).apply(m, generator(), registry.Job())
    after = state(m)
    assert {name.split(".")[0] for name in differing(before, after)} == {"blocks"}
    for name, value in before.items():
        if name.startswith("blocks"):
            # AdamW's first step is lr sign(gradient); without a gradient there is decay alone
            step = (after[name] - value * (1 - 1e-3 * 0.5)).abs()
            assert torch.isclose(step, torch.tensor(1e-3), rtol=0.02).float().mean() > (0.6 if "bias" in name else 0.95)
            assert step.max() < 1.02e-3
