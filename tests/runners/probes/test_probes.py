"""Probes: maps worked out by hand, timm's own functions, plain torch in float64, and a run that they leave alone."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from analysis.curves.layers import _over_heads
from benchmark.image_files.arrays import Data, Split
from benchmark.models.build import build_model
from benchmark.models.layers.gated_attention import leaving_out
from benchmark.models.registry import presets, spec_of
from benchmark.records.store import Store, maps_path
from benchmark.spec import Recipe
from initializers import registry
from initializers.attention import attention_layers
from initializers.diagnostics import distances, measured, nonlocality
from initializers.initialize import initialize
from initializers.targets import impulse_targets
from runners.basics.setting import Event
from runners.basics.stop import Stop, Stopped
from runners.basics.streams import stream
from runners.loaders.resident import ResidentLoader
from runners.one_run.carry_out import carry_out
from runners.probes.masking import masked
from runners.probes.quantities.effective_receptive_field import receptive_field
from runners.probes.quantities.impulse_mass import target_mass
from runners.probes.take import take as probe
from tests.faults.harness import assert_same, cells, setting

pytestmark = pytest.mark.usefixtures("one_thread")
SIDE = 4


def model_of(preset: str, method: str | None = None, **fields) -> nn.Module:
    spec = spec_of({**presets()[preset], "image_size": 16, "patch_size": 4, **fields})
    model = build_model(spec, 10)
    built = registry.build(method, {}, "method") if method else None
    initialize(model, registry.build("kaiming_uniform", {}), built, lambda name: stream(0, name))
    return model


def images_of(count: int) -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=stream(0, "test"))


def test_nonlocality_of_known_maps():
    tokens = SIDE**2
    identity, uniform = torch.eye(tokens), torch.full((tokens, tokens), 1 / tokens)
    right = torch.zeros(tokens, tokens)
    for query in range(tokens):  # one to the right, and from the last column to the first
        right[query, query // SIDE * SIDE + (query + 1) % SIDE] = 1
    by_hand = np.mean([math.hypot(a - c, b - d) for a, b, c, d in np.ndindex(SIDE, SIDE, SIDE, SIDE)])
    found = nonlocality(torch.stack([identity, uniform, right]), (SIDE, SIDE))
    assert found.tolist() == pytest.approx([0, by_hand, (3 * 1 + 3) / 4])
    assert distances((2, 3))[0].tolist() == pytest.approx([0, 1, 2, 1, math.sqrt(2), math.sqrt(5)])


def test_mass_counts_only_queries_whose_target_is_inside():
    targets_HNN = impulse_targets((SIDE, SIDE), [(0, 1), (0, 0)])
    maps_HNN = torch.full((2, SIDE**2, SIDE**2), 1 / SIDE**2)
    maps_HNN[0] = targets_HNN[0] * 0.5 + 0.5 * torch.eye(SIDE**2)
    assert target_mass(maps_HNN[None], targets_HNN[None].bool()).tolist() == [[0.5, 1 / SIDE**2]]
    two_layers = torch.stack([maps_HNN, maps_HNN])
    assert len(target_mass(two_layers, targets_HNN[None].bool())) == 1, "of the layers that have a target"


def test_a_head_without_a_number_ends_no_run():
    """One that gives all attention of a query to the class token, or aims at nothing."""
    spec = spec_of(
        {**presets()["vit_micro"], "image_size": 16, "patch_size": 4, "pool": "token", "position": "learned"}
    )
    model, sharp = build_model(spec, 10), registry.build("impulse", {"weight_norm": 1000.0}, "method")
    initialize(model, registry.build("trunc_normal", {}), sharp, lambda name: stream(0, name))
    targets_LHNN = torch.zeros(spec.depth, spec.heads, SIDE**2, SIDE**2)
    targets_LHNN[:, 0] = torch.eye(SIDE**2)
    taken = probe(model, images_of(4), targets_LHNN, 1)
    assert all(head is None for heads in taken.impulse_mass for head in heads[1:])
    numbers = [head for heads in taken.attention_entropy for head in heads]
    assert None in numbers
    assert any(isinstance(number, float) for number in numbers)
    assert _over_heads([[1.0, None, 3.0], [2.0]]) == [2.0, 2.0]
    assert _over_heads([[1.0], [None, None]]) is None


@pytest.mark.parametrize("preset", ["vit_micro", "convit_micro"])
def test_attention_is_what_plain_torch_in_float64_says(preset):
    """Block after block, with its own softmax over the patch tokens alone."""
    model, images_BCHW = model_of(preset), images_of(11)
    found = probe(model, images_BCHW, None, 0)
    model = model.double().eval()
    distance_NN = distances((SIDE, SIDE))
    with torch.no_grad():
        x_BND = model.patch_embed(images_BCHW.double()) + model.pos_embed
        for number, block in enumerate(model.blocks):
            if preset == "convit_micro" and number == model.local_up_to_layer:
                x_BND = torch.cat([model.cls_token.expand(len(x_BND), -1, -1), x_BND], 1)
            normed, attention = block.norm1(x_BND), block.attn
            patches = normed[:, -(SIDE**2) :]
            stacked = attention.qk(patches) if hasattr(attention, "qk") else attention.qkv(patches)
            heads = attention.num_heads
            query, key = stacked.unflatten(-1, (-1, heads, 48 // heads)).permute(2, 0, 3, 1, 4)[:2]
            map_BHNN = (query @ key.mT / math.sqrt(48 // heads)).softmax(-1)
            if hasattr(attention, "gating_param"):
                gate = attention.gating_param.sigmoid()[:, None, None]
                features = attention.get_rel_indices(SIDE**2).double()
                position_HNN = attention.pos_proj(features)[0].permute(2, 0, 1).softmax(-1)
                map_BHNN = (1 - gate) * map_BHNN + gate * position_HNN
            far = (map_BHNN * distance_NN).sum((-2, -1)).mean(0) / SIDE**2
            assert found.nonlocality[number] == pytest.approx(far.tolist(), rel=1e-5)
            entropy = -(map_BHNN * map_BHNN.log()).sum(-1).mean((0, 2))
            assert found.attention_entropy[number] == pytest.approx(entropy.tolist(), rel=1e-5)
            x_BND = block(x_BND)


def test_reference_is_what_convit_logs_of_itself():
    """timm keeps the function of the released code; it is fed the patch embedding as that code does."""
    model, images_BCHW = model_of("convit_micro", "convit_gpsa"), images_of(20)
    found = probe(model, images_BCHW, None, 0).nonlocality_reference
    with torch.no_grad():
        tokens_BND = model.eval().patch_embed(images_BCHW)
        expected = [block.attn.get_attention_map(tokens_BND).tolist() for block in model.blocks]
    assert found == [pytest.approx(each, rel=1e-5) for each in expected]


def test_gates_of_a_new_convit():
    found = probe(model_of("convit_micro", "convit_gpsa"), images_of(2), None, 0)
    assert found.gating == [[pytest.approx(0.731059, abs=1e-6)] * 4] * 2
    assert probe(model_of("vit_micro"), images_of(2), None, 0).gating is None


def test_targets_of_a_method_reach_the_probe():
    """Each layer's own: with `per_layer` they differ, and a sharp solution has most of its attention there."""
    spec = spec_of({**presets()["vit_micro"], "image_size": 16, "patch_size": 4})
    params = {"kernel_size": 3, "per_layer": True, "weight_norm": 40.0, "position_scale": 8.0}
    model, base = build_model(spec, 10), registry.build("kaiming_uniform", {})
    method = registry.build("impulse", params, "method")
    _, targets_LHNN = initialize(model, base, method, lambda name: stream(0, name))
    assert targets_LHNN.shape == (3, 4, 16, 16)
    assert not torch.equal(targets_LHNN[0], targets_LHNN[1])
    found = probe(model, images_of(4), targets_LHNN, 0).impulse_mass
    others = probe(model, images_of(4), targets_LHNN.roll(1, 0), 0).impulse_mass
    assert np.mean(found[0]) > 0.5 > np.mean(others[0])


def test_receptive_field_of_a_linear_model_is_known():
    """Each token becomes a sum of others: itself; its right neighbour; all but the first, which is nobody's."""

    class Mix(nn.Module):
        def __init__(self, map_NN):
            super().__init__()
            self.map_NN = map_NN

        def forward(self, x_BND):
            return self.map_NN @ x_BND

    class Unread(nn.Module):
        """Adds something of all tokens to all features alike, which the next LayerNorm takes away."""

        def forward(self, x_BND):
            return x_BND + x_BND[..., :1].mean(1, keepdim=True)

    model = model_of("vit_micro")
    right = torch.diag(torch.ones(SIDE**2 - 1), 1)
    model.blocks = nn.Sequential(Unread(), Mix(right), Mix(torch.ones(SIDE**2, SIDE**2)))
    model.patch_embed.proj.weight.data.copy_(torch.arange(48.0)[:, None, None, None])
    everywhere = np.mean([math.hypot(a - 2, b - 2) for a, b in list(np.ndindex(SIDE, SIDE))[1:]])
    assert receptive_field(model, images_of(3)).tolist() == pytest.approx([0, 1, everywhere], abs=1e-5)
    assert all(p.grad is None for p in model.parameters())


def test_leaving_out_a_term_leaves_the_other_one():
    model, images_BCHW = model_of("convit_micro", "convit_gpsa"), images_of(3)
    model.eval()
    whole = model(images_BCHW)
    gates = [layer.module.gating_param for layer in attention_layers(model) if layer.gated]
    for term, gate in (("content", 50.0), ("position", -50.0)):
        with leaving_out(model, term, 1):
            found = model(images_BCHW)
        before = gates[0].data.clone()
        gates[0].data.fill_(gate)
        torch.testing.assert_close(found, model(images_BCHW))
        gates[0].data.copy_(before)
        assert not torch.allclose(found, whole)
    torch.testing.assert_close(model(images_BCHW), whole, rtol=0, atol=0)


def test_accuracy_without_one_term_is_that_of_gates_turned_to_the_other():
    """In 3, 5 and 10 of 10 layers, on 1,000 of 1,100 images; by gates of 50 or -50, whose sigmoid is 1 or 0."""
    model = model_of("convit_micro", "convit_gpsa", depth=11, gpsa_layers=10, width=16)
    pixels = torch.randint(256, (1100, 3, 16, 16), generator=stream(0, "pixels"), dtype=torch.uint8)
    held_out = Split(pixels, torch.arange(1100) % 10)
    data = Data(held_out, held_out, tuple("abcdefghij"), (0.5,) * 3, (0.25,) * 3, "")
    loader = ResidentLoader(data, Recipe(name="test", epochs=1, batch_size=10, lr=1e-3), 0, torch.device("cpu"))
    with torch.no_grad():
        for parameter in model.parameters():  # so that what a layer does counts
            parameter.mul_(3)
        images = loader.plain(torch.arange(1100), "held_out")
        labels = model.eval()(images).argmax(-1)
    found = masked(model, loader, labels, images_seen=50_000)
    assert [(each.layers, each.term) for each in found] == list(itertools.product((3, 5, 10), ("content", "position")))
    chosen = torch.randperm(1100, generator=stream(0, "maps"))[:1000]
    for each in found:
        assert (each.images, each.top1_whole) == (1000, 100)
        changed = copy.deepcopy(model)
        with torch.no_grad():
            for block in changed.blocks[: each.layers]:
                block.attn.gating_param.fill_(50 if each.term == "content" else -50)
            by_hand = 100 * float((changed(images).argmax(-1) == labels)[chosen].float().mean())
        assert each.top1 == pytest.approx(by_hand, abs=0.21)
    assert len({each.top1 for each in found}) == len(found)
    assert max(each.top1 for each in found) < 95
    (most, *_) = masked(model, loader, labels, images_seen=105_000)
    assert most.images == 1050


def test_maps_are_read_without_changing_anything():
    model, images_BCHW = model_of("convit_micro", "convit_gpsa").train(), images_of(5)
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    probe(model, images_BCHW, None, 0)
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    for maps_HNN in measured(model, images_BCHW).maps:
        assert maps_HNN.sum(-1).numpy() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("row", ["dropout", "convit", "mimetic", "convmixer"])
def test_a_run_is_the_same_with_and_without_probes_and_maps_and_resumed(tmp_path, row):
    cell = next(cell for cell in cells(tmp_path) if cell.row == row)
    without = setting(tmp_path / "without", probes=False)
    probed, resumed = (setting(tmp_path / name, keep_maps=True) for name in "ab")
    stop = Stop()

    def on_event(event: Event) -> None:
        if event.epoch and event.epoch.epoch == 1:
            stop.request("a test")

    with pytest.raises(Stopped):
        carry_out(cell, resumed, stop, on_event)
    for where in (without, probed, resumed):
        carry_out(cell, where, Stop())
    assert_same(probed, resumed, cell)
    assert_same(without, probed, cell, but=("probes", "masked"))
    record = Store(probed.root).read("faults").done[cell.run_id]
    assert [found.epoch for found in record.probes] == ([] if row == "convmixer" else [0, 1, 2])
    assert [(found.term, found.layers, found.images) for found in record.masked] == (
        [("content", 1, 360), ("position", 1, 360)] if row == "convit" else []
    )
    if row == "convit":
        assert record.masked[0].top1_whole == pytest.approx(record.score)
    maps = [maps_path(where.root, "faults", cell.run_id) for where in (probed, resumed, without)]
    assert [path.exists() for path in maps] == [row != "convmixer"] * 2 + [False]
    if row != "convmixer":
        assert maps[0].read_bytes() == maps[1].read_bytes()


def test_probes_that_a_run_began_without_are_left_out_and_said_to_be(tmp_path):
    cell = next(cell for cell in cells(tmp_path) if cell.row == "mimetic")
    stop, troubles = Stop(), []

    def stop_after_one(event: Event) -> None:
        if event.epoch:
            stop.request("a test")

    def listen(event: Event) -> None:
        troubles.extend([event.trouble] if event.trouble else [])

    with pytest.raises(Stopped):
        carry_out(cell, setting(tmp_path, probes=False), stop, stop_after_one)
    carry_out(cell, setting(tmp_path, keep_maps=True), Stop(), listen)
    assert Store(tmp_path).read("faults").done[cell.run_id].probes == []
    assert troubles == [
        "probes are not recorded: the run began without them",
        "attention maps are not kept: the run is past epoch 0, where it did not keep them",
    ]
