"""Probes and kept maps: by hand, by timm, by plain torch in float64; runs that they leave alone."""

import copy
import itertools
import math
from typing import ClassVar, Literal

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn

from tests.faults.harness import assert_same, cell_of, cells, setting, stopped_after
from vitinit import adapters
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.models import registry as models
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.registry import ModelSpec, families, presets
from vitinit.benchmark.records.store import Store, kept_path
from vitinit.benchmark.spec import Recipe, model_spec
from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.diagnostics import distances
from vitinit.initializers.streams import stream
from vitinit.initializers.targets import target_matrices, target_positions
from vitinit.runners.basics.setting import Stop
from vitinit.runners.loaders.base import ResidentLoader
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.probes.observer import masked, measure
from vitinit.runners.probes.quantities import Seen, effective_receptive_field, target_mass
from vitinit.runners.training.train import autocast

pytestmark = pytest.mark.usefixtures("one_thread")
SIDE = 4


def model_of(preset, method=None, **fields):
    spec = model_spec({**presets()[preset], "image_size": 16, "patch_size": 4, **fields})
    model = build_model(spec, 10)
    built = registry.build(method, {}, "method") if method else None
    initialize_run(model, registry.build("kaiming_uniform", {}), built, lambda name: stream(0, name))
    return model


def images_of(count):
    return torch.randn(count, 3, 16, 16, generator=stream(0, "test"))


def probe(model, images_BCHW, targets_LHNN, epoch):
    result, missing = measure(model, images_BCHW, targets_LHNN, epoch)
    assert not missing
    return result


def test_mass_counts_only_queries_whose_target_is_inside():
    grid = (SIDE, SIDE)
    targets_HNN = target_matrices(grid, target_positions(grid, [(0, 1), (0, 0)]))
    maps_HNN = torch.full((2, SIDE**2, SIDE**2), 1 / SIDE**2)
    maps_HNN[0] = targets_HNN[0] * 0.5 + 0.5 * torch.eye(SIDE**2)
    assert target_mass(maps_HNN[None], targets_HNN[None].bool()).tolist() == [[0.5, 1 / SIDE**2]]
    two_layers = torch.stack([maps_HNN, maps_HNN])
    assert len(target_mass(two_layers, targets_HNN[None].bool())) == 1, "of the layers that have a target"


@pytest.mark.parametrize("preset", ["vit_micro", "convit_micro"])
def test_attention_is_what_plain_torch_in_float64_says(preset):
    """Block after block, with its own softmax over the patch tokens alone."""
    model, images_BCHW = model_of(preset), images_of(11)
    result = probe(model, images_BCHW, None, 0)
    assert (result.images, result.receptive_field_images) == (11, 4)
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
            assert result.nonlocality[number] == pytest.approx(far.tolist(), rel=1e-5)
            entropy = -(map_BHNN * map_BHNN.log()).sum(-1).mean((0, 2))
            assert result.attention_entropy[number] == pytest.approx(entropy.tolist(), rel=1e-5)
            x_BND = block(x_BND)


def test_reference_is_what_convit_logs_of_itself():
    """timm keeps the function of the released code; it is fed the patch embedding as that code does."""
    model, images_BCHW = model_of("convit_micro", "convit_gpsa"), images_of(20)
    reference = probe(model, images_BCHW, None, 0).nonlocality_reference
    with torch.no_grad():
        tokens_BND = model.eval().patch_embed(images_BCHW)
        expected = [block.attn.get_attention_map(tokens_BND).tolist() for block in model.blocks]
    assert reference == [pytest.approx(layer, rel=1e-5) for layer in expected]


def test_receptive_field_of_a_linear_model_is_known():
    """Each token becomes a sum of others: itself; its right neighbour; all but the first, which is nobody's."""
    attention = model_of("vit_micro").blocks[0].attn  # by which a block is known

    class Mix(nn.Module):
        def __init__(self, map_NN):
            super().__init__()
            self.map_NN, self.unused = map_NN, copy.deepcopy(attention)

        def forward(self, x_BND):
            return self.map_NN @ x_BND

    class Unread(nn.Module):
        """Adds something of all tokens to all features alike, which the next LayerNorm takes away."""

        def __init__(self):
            super().__init__()
            self.unused = copy.deepcopy(attention)

        def forward(self, x_BND):
            return x_BND + x_BND[..., :1].mean(1, keepdim=True)

    model = model_of("vit_micro")
    right = torch.diag(torch.ones(SIDE**2 - 1), 1)
    model.blocks = nn.Sequential(Unread(), Mix(right), Mix(torch.ones(SIDE**2, SIDE**2)))
    channels = torch.tensor([1.0, -1.0, 0.0])  # absolute before their mean, or nothing is left
    model.patch_embed.proj.weight.data.copy_(torch.arange(48.0)[:, None, None, None] * channels[:, None, None])
    everywhere = np.mean([math.hypot(a - 2, b - 2) for a, b in list(np.ndindex(SIDE, SIDE))[1:]])
    seen = Seen(model, images_of(3))
    assert effective_receptive_field(seen).tolist() == pytest.approx([0, 1, everywhere], abs=1e-5)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.long
def test_accuracy_without_one_term_is_that_of_gates_turned_to_the_other():
    """In 3, 5 and 10 of 10 layers, on 1,000 of 1,100 images; by gates of 50 or -50, whose sigmoid is 1 or 0.

    In bf16, as the run: in fp32 the whole model would not be right on all images.
    """
    model = model_of("convit_micro", "convit_gpsa", depth=11, gpsa_layers=10, width=16)
    pixels = torch.randint(256, (1100, 3, 16, 16), generator=stream(0, "pixels"), dtype=torch.uint8)
    held_out = Split(pixels, torch.arange(1100) % 10)
    data = Data(held_out, held_out, tuple("abcdefghij"), (0.5,) * 3, (0.25,) * 3, "", 16)
    recipe = Recipe(name="test", epochs=1, batch_size=10, lr=1e-3, precision="bf16")
    loader = ResidentLoader(data, recipe, 0, torch.device("cpu"))
    images = loader.plain(torch.arange(1100), "held_out")
    with torch.no_grad(), autocast(recipe, loader.device):
        for parameter in model.parameters():  # so that what a layer does counts
            parameter.mul_(3)
        labels = held_out.labels.copy_(model.eval()(images).argmax(-1))
    removals = masked(model, loader)
    removed = itertools.product((3, 5, 10), ("content", "position"))
    assert [(removal.layers, removal.term) for removal in removals] == list(removed)
    chosen = torch.randperm(1100, generator=stream(0, "maps"))[:1000]
    for removal in removals:
        assert (removal.images, removal.top1_whole) == (1000, 100)
        changed = copy.deepcopy(model)
        with torch.no_grad(), autocast(recipe, loader.device):
            for block in changed.blocks[: removal.layers]:
                block.attn.gating_param.fill_(50 if removal.term == "content" else -50)
            by_hand = 100 * float((changed(images).argmax(-1) == labels)[chosen].float().mean())
        assert removal.top1 == pytest.approx(by_hand, abs=1)
    assert len({removal.top1 for removal in removals}) == len(removals)
    assert max(removal.top1 for removal in removals) < 95
    loader.recipe = recipe.model_copy(update={"epochs": 96})
    assert masked(model, loader)[0].images == 1_056


@pytest.mark.long
@pytest.mark.parametrize("name", ["convit", "mimetic", "convmixer"])
def test_a_run_is_the_same_with_and_without_probes_and_maps(tmp_path, name):
    cell, troubles = cell_of(name, tmp_path), []
    probed, begun_without = setting(tmp_path / "probed", keep_maps=True), setting(tmp_path / "without", probes=False)
    carry_out(cell, probed, Stop())
    stopped_after(1, cell, begun_without)
    later = setting(tmp_path / "without", keep_maps=True)
    carry_out(cell, later, Stop(), troubles.append)
    assert_same(later, probed, cell, but=("probes", "masked"))
    record = Store(probed.root).read("faults").done[cell.run_id]
    attends = name != "convmixer"
    assert [taken.epoch for taken in record.probes] == [0, 1, 2] * attends
    assert [(removal.term, removal.layers, removal.images) for removal in record.masked] == (
        [("content", 1, 360), ("position", 1, 360)] if name == "convit" else []
    )
    if name == "convit":
        assert record.masked[0].top1_whole == pytest.approx(record.score)
    kept = [kept_path(where.root, "faults", cell.run_id, "maps").exists() for where in (probed, later)]
    assert kept == [attends, False]
    assert Store(later.root).read("faults").done[cell.run_id].probes == []
    refused = ["attention maps are not kept: ConvMixer has none of one known shape"]
    begun = [
        f"{what}: the run began without them" for what in ("probes are not recorded", "attention maps are not kept")
    ]
    assert [text for text in troubles if isinstance(text, str) and "goes on" not in text] == (
        begun if attends else refused
    )


@pytest.mark.long
def test_probes_of_before_stay_where_a_part_of_the_run_is_without_them(tmp_path):
    cell, troubles = cells(tmp_path, 4)[2], []
    for epochs, probes in ((1, True), (2, False), (3, True)):
        stopped_after(epochs, cell, setting(tmp_path, probes=probes))
    carry_out(cell, setting(tmp_path), Stop(), troubles.append)
    assert [taken.epoch for taken in Store(tmp_path).read("faults").done[cell.run_id].probes] == [0, 1, 3, 4]
    assert "probes after epoch 2 are missing: the run was without them" in troubles


class Grid(nn.Module):
    """Attention between tokens of B x rows x columns x D, in a block that is not called as timm's are."""

    def __init__(self, width=12, heads=2):
        super().__init__()
        self.n_head, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x_BHWD):
        q, k, v = self.qkv(x_BHWD.flatten(1, 2)).unflatten(-1, (3, self.n_head, -1)).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return x_BHWD + self.proj(mixed.transpose(1, 2).flatten(2)).view_as(x_BHWD)


class Own(nn.Module):
    """Model of its own make."""

    def __init__(self, num_classes=10, layers=2):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 12, 4, 4), nn.Linear(12, num_classes)
        self.body = nn.Sequential(*(nn.Sequential(Grid(), nn.LayerNorm(12)) for _ in range(layers)))

    def forward(self, images_BCHW):
        return self.head(self.body(self.stem(images_BCHW).permute(0, 2, 3, 1)).mean((1, 2)))


GRID_ADAPTER = adapters.Adapter(
    name="own grid",
    models=(Own,),
    attention=(
        adapters.Attention((Grid,), "n_head", *adapters.fused("qkv.weight", "qkv.bias"), adapters.linear("proj")),
    ),
    grid=lambda model: (4, 4),
)


def test_an_adapter_is_enough_to_measure_attention():
    adapters.register(GRID_ADAPTER)
    others = torchvision.models.VisionTransformer(16, 4, 2, 2, 12, 24, num_classes=10)
    dinov3 = timm.create_model("vit_small_patch16_dinov3", img_size=16, patch_size=4, depth=2, num_classes=10)
    try:
        for model in (Own(), others, dinov3):
            result, missing = measure(model, images_of(4), None, 0)
            assert not missing
            quantities = (result.nonlocality, result.attention_entropy, result.effective_receptive_field)
            assert [len(layers) for layers in quantities] == [2, 2, 2]
    finally:
        adapters.unregister(GRID_ADAPTER.name)


class OwnFamily(ModelSpec):
    """Family that is not shaped like timm's."""

    label = "Own"
    presets: ClassVar[dict] = {"own": {}}
    arch: Literal["own"] = "own"
    mixing: ClassVar[str] = "attention"

    def build(self, classes):
        return Own(classes)


@pytest.mark.parametrize("arch", [*(name for name, family in families().items() if not family.by_name), "own"])
def test_a_run_of_every_family_is_recorded(arch, tmp_path, monkeypatch):
    monkeypatch.setitem(models.REGISTRY.known, "own", OwnFamily)
    model = {"preset": next(iter(families()[arch].presets)), "depth": 3}
    cell, troubles = cells(tmp_path, 1, {arch: {"base": "trunc_normal", "model": model}})[0], []
    end = carry_out(cell, setting(tmp_path), Stop(), troubles.append)
    assert end.status == "done", end
    assert any("is of a kind that no adapter knows" in str(trouble) for trouble in troubles) == (arch == "own")
