"""`placebo`: what it keeps of a method, what goes, and that nothing else differs; against numpy in float64."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from impulse_helpers import mass_and_argmax, position_attention
from placebo_helpers import KEEPS, made, placebo
from small_models import (
    CONVIT,
    CONVMIXER,
    VIT,
    VIT_TOKEN,
    differing,
    f64,
    images,
    model,
    qkv_rows,
    refused,
    silent,
    softmax,
    state,
    streams,
)

import vitinit
from vitinit.initializers import registry
from vitinit.initializers.attention import attention_layers
from vitinit.initializers.methods.placebo import IMAGES, orthogonal
from vitinit.initializers.registry import Resources
from vitinit.initializers.report import InitReport

IMPULSE = {"name": "impulse", "kernel_size": 3, "solver": "rotation", "weight_norm": 4.0}
BOTH = {**IMPULSE, "value_proj": "mimetic"}
BOXES = {"name": "conv_filters", "filter": "box", "entries": 9}
METHODS = [{"name": "mimetic"}, BOTH]
WIDE = VIT.model_copy(update={"width": 192, "heads": 3, "depth": 1})


def weights(m: Any, layer: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """W_q, W_k, W_v (heads x d x D) and W_proj (heads x D x d) of a ViT."""
    query, key, value = qkv_rows(m, layer)
    proj = f64(m.blocks[layer].attn.proj.weight)
    return query, key, value, np.stack(np.split(proj, len(query), axis=1))


def singular(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrices, compute_uv=False)


def same_spectrum(a: np.ndarray, b: np.ndarray) -> bool:
    """Singular values equal to 1e-5 of the largest, and not zero."""
    first, second = singular(a), singular(b)
    return bool(first.max() > 0.1 and np.abs(first - second).max() <= 1e-5 * first.max())


# --- spectrum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", METHODS, ids=["mimetic", "impulse"])
def test_spectra_stay_the_weights_go_and_the_record_holds_the_start_of_both(of: Any) -> None:
    (m, alone), (placebo_m, without), layer = made(of), made(placebo(of)), 1
    method, rotated = weights(m, layer), weights(placebo_m, layer)
    for a, b in zip(method, rotated, strict=True):
        for one, other in zip(a, b, strict=True):
            assert same_spectrum(one, other)
            assert abs((one * other).sum()) < 0.35 * (one**2).sum(), "another matrix"
    for (q, k, v, p), (rq, rk, rv, rp) in zip(zip(*method, strict=True), zip(*rotated, strict=True), strict=True):
        assert same_spectrum(q.T @ k, rq.T @ rk)
        assert same_spectrum(p @ v, rp @ rv), "of the value path of a head"
    paths = [f64(each.blocks[layer].attn.proj.weight) for each in (m, placebo_m)]
    values = [np.concatenate(each[2]) for each in (method, rotated)]
    assert same_spectrum(paths[0] @ values[0], paths[1] @ values[1]), "of the value path of the layer"

    assert alone.placebo is None
    assert without.placebo.method == alone.start
    assert (without.placebo.of["name"], without.placebo.keep) == (of["name"], "spectrum")
    assert set(without.placebo.treated) == {f"blocks.{i}.attn: W_{w}" for i in (0, 1) for w in ("q", "k", "v", "proj")}
    assert without.placebo.weights == [], "these are all of attention, so `method` and `start` have them"
    for old, new in zip(alone.start, without.start, strict=True):
        for one, other in ((old.query_key, new.query_key), (old.value_path, new.value_path)):
            assert other.norm == pytest.approx(one.norm, rel=1e-5)
            assert other.rank == one.rank
        assert new.entropy != old.entropy
    assert InitReport.model_validate_json(without.model_dump_json()) == without


def test_rotations_are_orthogonal_and_independent_by_head_and_part() -> None:
    """R of W R is found from W by least squares, where W has full row rank: only its action on the row space."""
    method, rotated = weights(made("mimetic")[0]), weights(made(placebo("mimetic"))[0])
    pairs = [pair for part in (0, 1) for pair in zip(method[part], rotated[part], strict=True)]
    frames = [np.linalg.pinv(one) @ other for one, other in pairs]  # projector on the row space times R
    for number, ((one, _), frame) in enumerate(zip(pairs, frames, strict=True)):
        assert np.allclose(singular(frame)[: len(one)], 1, atol=1e-4)
        assert all(abs((frame * other).sum()) < 0.3 * (frame**2).sum() for other in frames[:number])
    for (one, turned), (other, turned_too) in pairwise(pairs):  # by one rotation both together would keep their lengths
        together = np.linalg.pinv(np.vstack([one, other])) @ np.vstack([turned, turned_too])
        assert not np.allclose(singular(together)[: 2 * len(one)], 1, atol=0.1)


def test_a_random_orthogonal_matrix_is_orthogonal_and_uniform() -> None:
    """Haar: E[Q_ij] = 0 and E[Q_ij^2] = 1/n for every entry; without the sign rule the diagonal would be negative."""
    g = torch.Generator().manual_seed(0)
    drawn = np.stack([orthogonal(3, g).numpy() for _ in range(4000)])
    assert np.abs(drawn @ drawn.transpose(0, 2, 1) - np.eye(3)).max() < 1e-12
    assert np.abs(drawn.mean(0)).max() < 5 * math.sqrt(1 / 3 / 4000)
    assert np.abs((drawn**2).mean(0) - 1 / 3).max() < 5 * math.sqrt(0.2 / 4000)


# --- the method's own fidelity is gone -----------------------------------------------------------------------------


@pytest.mark.parametrize("keep", KEEPS)
def test_of_impulse_nothing_is_left_on_the_target(keep: str) -> None:
    method, report = made(IMPULSE)
    other, without = made(placebo(IMPULSE, keep))
    built = registry.build("impulse", {k: v for k, v in IMPULSE.items() if k != "name"})
    targets = built.apply(model(VIT), streams(0)("init/method"), silent).targets_LHNN[0].numpy()
    masses = [mass_and_argmax(position_attention(m), targets)[0] for m in (method, other)]
    assert masses[0] > 0.3
    assert masses[1] < 2.5 / 64, "chance is 1/64"
    assert report.pseudo_input.mass == pytest.approx(masses[0], rel=1e-3)
    assert without.pseudo_input.mass == pytest.approx(masses[1], rel=1e-3), "measured against the method's targets"


@pytest.mark.parametrize("keep", KEEPS)
def test_of_mimetic_the_diagonals_are_gone(keep: str) -> None:
    """Mean diagonals at D = 192, d = 64: 0.40 of W_q^T W_k and -0.40 of the value path."""

    def diagonals(m: Any) -> tuple[np.ndarray, float]:
        q, k, v, p = weights(m)
        return np.array([np.trace(a.T @ b) / 192 for a, b in zip(q, k, strict=True)]), float(
            np.trace(np.concatenate(p, axis=1) @ np.concatenate(v)) / 192
        )

    method, without = diagonals(made("mimetic", WIDE)[0]), diagonals(made(placebo("mimetic", keep), WIDE)[0])
    assert method[0] == pytest.approx(0.4, abs=0.03)
    assert method[1] == pytest.approx(-0.4, abs=0.03)
    assert np.abs(without[0]).max() < 0.03
    assert abs(without[1]) < 0.03


# --- norm and entropy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", METHODS, ids=["mimetic", "impulse"])
def test_norms_stay_per_head_and_matrix_and_entries_are_gaussian(of: Any) -> None:
    method, gaussian = weights(made(of)[0]), weights(made(placebo(of, "norm"))[0])
    for a, b in zip(method, gaussian, strict=True):
        norms = [np.sqrt((w**2).sum((1, 2))) for w in (a, b)]
        np.testing.assert_allclose(norms[1], norms[0], rtol=1e-5)
        entries = (b / norms[1][:, None, None]).ravel() * math.sqrt(b[0].size)
        assert abs((entries**4).mean() - 3) < 5 * math.sqrt(96 / entries.size), "kurtosis of a normal"


def test_entries_stay_per_head_and_matrix_in_another_order() -> None:
    method, shuffled = (made(one)[0] for one in ("mimetic", placebo("mimetic", "entries")))
    for before, after in zip(weights(method), weights(shuffled), strict=True):
        for a, b in zip(before, after, strict=True):
            assert np.array_equal(np.sort(a, None), np.sort(b, None))
            assert np.abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.2


@torch.no_grad()
def plain_entropies(m: Any, images_BCHW: torch.Tensor) -> list[float]:
    """Mean attention entropy of every layer between patch tokens: softmax written out in float64."""
    found, tokens, x_BND = [], math.prod(m.patch_embed.grid_size), m._pos_embed(m.patch_embed(images_BCHW))
    for block in m.blocks:
        given, attn = f64(block.norm1(x_BND)), block.attn
        projected = given @ f64(attn.qkv.weight).T + f64(attn.qkv.bias)
        query, key, _ = projected.reshape(*given.shape[:2], 3, attn.num_heads, -1).transpose(2, 0, 3, 1, 4)
        p = softmax((query @ key.transpose(0, 1, 3, 2) / math.sqrt(query.shape[-1]))[..., -tokens:, -tokens:])
        found.append(float(-(p * np.log(np.maximum(p, 1e-300))).sum(-1).mean()))
        x_BND = block(x_BND)
    return found


def assert_matched(wanted: list[float], found: list[float], unmatched: list[float]) -> None:
    assert found == pytest.approx(wanted, rel=2e-3), "1 % is asked for"
    assert all(abs(a - b) > 0.02 * b for a, b in zip(unmatched, wanted, strict=True)), "or there was nothing to match"


@pytest.mark.parametrize(("spec", "of"), [(VIT, METHODS[0]), (VIT_TOKEN, METHODS[1])], ids=["mimetic", "impulse"])
def test_entropy_is_that_of_the_method_in_every_layer(spec: Any, of: Any) -> None:
    method, only_norm = (made(each, spec)[0] for each in (of, placebo(of, "norm")))
    matched, report = made(placebo(of, "entropy"), spec)
    wanted, found, unmatched = (plain_entropies(m, images(IMAGES)) for m in (method, matched, only_norm))
    assert_matched(wanted, found, unmatched)
    assert [entry.layer for entry in report.placebo.matched] == [f"blocks.{i}.attn" for i in range(2)]
    assert [entry.method for entry in report.placebo.matched] == pytest.approx(wanted, rel=1e-4)
    assert [entry.placebo for entry in report.placebo.matched] == pytest.approx(found, rel=1e-4)
    for layer, entry in enumerate(report.placebo.matched):
        ours, norm_alone = weights(matched, layer), weights(only_norm, layer)
        for part in (0, 1):  # as `norm`, times the scale; of W_v and W_proj the very same
            np.testing.assert_allclose(ours[part], entry.scale * norm_alone[part], rtol=1e-5)
        for part in (2, 3):
            np.testing.assert_array_equal(ours[part], norm_alone[part])


def test_entropy_is_matched_on_the_batch_that_a_user_gives() -> None:
    """On all of it, whose images differ in contrast, so in attention; 10 is no divisor of what is asked for."""
    batch_BCHW = images(10) * torch.linspace(0.1, 4, 10).view(-1, 1, 1, 1)
    models = model(), model(), model()
    for m, asked in zip(models, ("mimetic", placebo("mimetic", "entropy"), placebo("mimetic", "norm")), strict=True):
        vitinit.initialize(m, asked, base="trunc_normal", images=batch_BCHW)
    assert_matched(*(plain_entropies(m, batch_BCHW) for m in models))


def test_entropy_near_that_of_uniform_attention_is_matched_by_what_it_lacks_to_it() -> None:
    of = {**IMPULSE, "weight_norm": 1.0}
    models = [made(each)[0] for each in (of, placebo(of, "entropy"), placebo(of, "norm"))]
    wanted, found, unmatched = (math.log(64) - np.array(plain_entropies(m, images(IMAGES))) for m in models)
    assert wanted.max() < 0.02
    np.testing.assert_allclose(found, wanted, rtol=0.01)
    assert (unmatched < 0.5 * wanted).all()


def test_entropy_of_gated_attention_is_matched_by_its_content_part() -> None:
    _, report = made(placebo(IMPULSE, "entropy"), CONVIT)
    for entry in report.placebo.matched:
        assert entry.placebo == pytest.approx(entry.method, rel=2e-3)


def test_entropy_that_no_scale_gives_is_refused_in_one_line() -> None:
    """A placebo of the local initialisation attends to other places, and has no W_q and W_k to make up for it."""
    says = r"'placebo'.*'entropy'.*blocks\.\d\.attn.*W_q"
    refused(model(CONVIT), says, placebo("convit_gpsa", "entropy"), base="kaiming_uniform", images=images(8))


def test_entropy_is_refused_where_a_query_sees_the_class_token_alone() -> None:
    """Weights so large that float32 has no room for a second share: between patches there is 0 to be divided by 0."""
    method = {"name": "mimetic", "parts": "qk", "alpha_qk": 300.0}
    four = VIT_TOKEN.model_copy(update={"patch_size": 16})
    m = made(method, four)[0]
    maps_BHNN = attention_layers(m)[0].attention(m.blocks[0].norm1(m._pos_embed(m.patch_embed(images(8)))))
    assert maps_BHNN.shape == (8, 4, 5, 5)
    assert (maps_BHNN[:, :, 1:, 1:].sum(-1) == 0).any()
    says = r"blocks\.0\.attn, where attention between patches is no number"
    refused(model(four), says, placebo(method, "entropy"), base="kaiming_uniform", images=images(8))


# --- what else changes, and what does not --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "spec", "keep"),
    [
        (BOTH, VIT, "spectrum"),
        ({"name": "impulse", "position_scale": 3.0}, VIT, "entropy"),
        ({"name": "mimetic", "parts": "vo"}, VIT_TOKEN, "norm"),
        (IMPULSE, CONVIT, "spectrum"),
    ],
    ids=["both", "scale", "vo", "convit"],
)
def test_only_what_the_method_changes_is_replaced_bit_for_bit(of: Any, spec: Any, keep: str) -> None:
    base, method, other = (made(each, spec)[0] for each in (None, of, placebo(of, keep)))
    assert differing(state(base), state(other)) == differing(state(base), state(method))
    for alone, with_method, found in zip(*(attention_layers(m) for m in (base, method, other)), strict=True):
        for part in ("query_HdD", "key_HdD", "value_DD", "proj_DD"):
            was, wanted, is_ = (getattr(layer, part) for layer in (alone, with_method, found))
            assert torch.equal(was, is_) == torch.equal(was, wanted), part
    embeddings = [state(m)["pos_embed"] for m in (method, other)]
    assert torch.equal(*embeddings), "kept as the method set it"


@pytest.mark.parametrize("keep", ["spectrum", "norm"])
def test_heads_that_a_method_no_longer_mixes_are_not_mixed_by_its_placebo(keep: str) -> None:
    m = zoo.build("timm CaiT")
    vitinit.initialize(m, placebo("mimetic", keep), base="trunc_normal")
    mixers = [mixer for layer in attention_layers(m) for mixer in layer.talking]
    assert len(mixers) == 2 * len(attention_layers(m))
    for mixer in mixers:
        np.testing.assert_array_equal(f64(mixer.weight), np.eye(4))


def test_the_method_inside_draws_what_it_draws_alone() -> None:
    """At the moment when it is measured the model is, bit for bit, as the method alone makes it."""
    alone = state(made(BOTH)[0])
    seen: list[dict[str, torch.Tensor]] = []
    m = model(VIT)
    registry.build("kaiming_uniform", {}).apply(m, streams(0)("init/base"), silent)
    watching = Resources(diagnose=lambda m: seen.append(state(m)) or [])
    registry.build("placebo", {"of": BOTH}).apply_with(m, streams(0)("init/method"), silent, watching)
    assert len(seen) == 1
    assert differing(alone, seen[0]) == set()


@pytest.mark.parametrize(("keep", "word"), [("spectrum", "rotated"), ("norm", "gaussian")])
def test_filters_of_a_convmixer_lose_their_impulses_and_keep_biases(keep: str, word: str) -> None:
    method, (without, report) = made("conv_filters", CONVMIXER)[0], made(placebo("conv_filters", keep), CONVMIXER)
    for i in range(2):
        old, new = (m.blocks[i][0].fn[0] for m in (method, without))
        a, b = (f64(layer.weight).reshape(48, -1) for layer in (old, new))
        assert same_spectrum(a, b) == (keep == "spectrum")
        assert (np.count_nonzero(b, axis=1) == a.shape[1]).all()
        assert torch.equal(old.bias, new.bias)
        assert not new.weight.requires_grad, "frozen as the method's"
        assert report.placebo.treated[f"blocks.{i}.0.fn.0.weight"] == word
        assert report.placebo.treated[f"blocks.{i}.0.fn.0.bias"] == "kept"


def test_positions_and_values_of_gpsa_layers_are_rotated_and_the_rest_is_kept() -> None:
    method, (without, report) = made("convit_gpsa", CONVIT)[0], made(placebo("convit_gpsa"), CONVIT)
    for i in range(2):
        old, new = method.blocks[i].attn, without.blocks[i].attn
        assert same_spectrum(f64(old.pos_proj.weight), f64(new.pos_proj.weight))
        assert not torch.allclose(old.pos_proj.weight, new.pos_proj.weight, atol=0.1)
        np.testing.assert_allclose(f64(new.v.weight) @ f64(new.v.weight).T, np.eye(48), atol=1e-5)
        for name in ("gating_param", "qk.weight", "proj.weight", "pos_proj.bias"):
            assert torch.equal(old.get_parameter(name), new.get_parameter(name))
    assert torch.equal(method.cls_token, without.cls_token)
    rotated = {name for name, done in report.placebo.treated.items() if done == "rotated"}
    assert rotated == {f"blocks.{i}.attn{part}" for i in (0, 1) for part in (": W_v", ".pos_proj.weight")}


# --- the record ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "spec", "count", "keep"),
    [
        ("conv_filters", CONVMIXER, 2, "spectrum"),
        (BOXES, CONVMIXER, 2, "norm"),
        ({"name": "lsuv", "images": 4}, VIT, 6, "spectrum"),
        ("convit_gpsa", CONVIT, 2, "norm"),
    ],
    ids=["filters of a ConvMixer", "its boxes", "patches, MLPs and head of a ViT", "positions of a ConViT"],
)
def test_the_record_holds_norm_rank_and_condition_of_what_is_replaced_outside_attention(
    of: Any, spec: Any, count: int, keep: str
) -> None:
    (method, alone), (other, report) = made(of, spec), made(placebo(of, keep), spec)
    assert alone.placebo is None
    replaced = [name for name, done in report.placebo.treated.items() if done != "kept" and ": W_" not in name]
    assert [entry.name for entry in report.placebo.weights] == replaced
    assert len(replaced) == count
    for entry in report.placebo.weights:
        for m, found in ((method, entry.method), (other, entry.placebo)):
            weight = f64(m.get_parameter(entry.name))
            matrix = weight.reshape(len(weight), -1)
            rank = np.linalg.matrix_rank(matrix, rtol=max(matrix.shape) * np.finfo(np.float32).eps)
            assert found.rank == [rank]
            assert found.norm == pytest.approx([np.linalg.norm(matrix)], rel=1e-5)
            assert found.condition == pytest.approx([singular(matrix)[0] / singular(matrix)[rank - 1]], rel=1e-5)
        assert entry.placebo.norm == pytest.approx(entry.method.norm, rel=1e-4)
        if keep == "spectrum":
            assert entry.placebo.rank == entry.method.rank
            assert entry.placebo.condition == pytest.approx(entry.method.condition, rel=1e-3)
        elif of == BOXES:
            assert (entry.method.rank, entry.placebo.rank) == ([1], [9]), "equal filters; Gaussian ones have full rank"
    data = report.model_dump(mode="json")
    assert InitReport.model_validate(data, strict=True) == report
    del data["placebo"]["weights"]
    old = InitReport.model_validate(data)
    assert old.placebo == report.placebo.model_copy(update={"weights": []}), "records of before it was measured"
