"""Kept attention maps: what timm's own attention is, the same after a stop, and no bit of the run is another."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from timm.layers import Attention
from timm.models.convit import GPSA, MHSA

from benchmark.grids.resolve import resolve_model
from benchmark.models.build import build_model
from benchmark.records.maps import AttentionMaps, read_maps
from benchmark.records.store import Store, maps_path
from initializers import registry
from initializers.initialize import initialize
from runners.basics.setting import Event
from runners.basics.stop import Stop, Stopped
from runners.basics.streams import stream
from runners.loaders import make_loader, open_data
from runners.one_run.carry_out import carry_out
from runners.one_run.observer import Observer
from tests.faults.harness import cells, setting

ROWS = ("dropout", "convit")
pytestmark = pytest.mark.usefixtures("one_thread")


def cell_of(row, folder, epochs: int = 2):
    return next(cell for cell in cells(folder, epochs) if cell.row == row)


def carried_out(cell, where, stop_at: int = 0) -> AttentionMaps | None:
    """Stopped after an epoch if it is named, taken up again; the maps that were kept."""
    stop = Stop()

    def on_event(event: Event) -> None:
        if event.epoch and event.epoch.epoch == stop_at:
            stop.request("a test")

    if stop_at:
        with pytest.raises(Stopped):
            carry_out(cell, where, stop, on_event)
    carry_out(cell, where, Stop())
    return read_maps(where.root, Store(where.root).read("faults").done[cell.run_id])


def own_attention(model, images_BCHW) -> np.ndarray:
    """What timm's modules multiply the values with when nothing is fused, mean over images: layers x heads x N x N."""
    maps = []
    for module in model.modules():
        if isinstance(module, MHSA | GPSA):
            module.__class__ = MHSA if isinstance(module, MHSA) else GPSA
        if isinstance(module, Attention):
            module.fused_attn = False
        if isinstance(module, GPSA):
            original = module.get_attention
            module.get_attention = lambda x, original=original: (maps.append(original(x)), maps[-1])[1]
        elif hasattr(module, "attn_drop"):
            module.attn_drop.register_forward_hook(lambda _, inputs, output: maps.append(inputs[0]))
    with torch.no_grad():
        model.eval()(images_BCHW)
    tokens = maps[0].shape[-1]
    return np.stack([attention.double().mean(0)[:, -tokens:, -tokens:].numpy() for attention in maps])


@pytest.mark.parametrize("row", ROWS)
def test_maps_are_those_of_timm_on_64_test_images(tmp_path, row):
    cell, where = cell_of(row, tmp_path, epochs=1), setting(tmp_path / "run", keep_maps=True)
    maps, spec = carried_out(cell, where), cell.spec
    data = open_data(spec.dataset, spec.model.image_size, tmp_path, "auto", "cpu")
    loader = make_loader(data, spec.recipe, spec.seed, torch.device("cpu"))
    chosen = torch.randperm(len(data.held_out.labels), generator=stream(0, "maps"))[:64]
    images_BCHW = torch.cat([images for images, _ in loader.held_out()])[chosen]
    initial = build_model(spec.model, 10)
    method = registry.build(spec.method.name, spec.method.params, "method")
    initialize(initial, registry.build(spec.base.name, {}, "base"), method, lambda name: stream(spec.seed, name))
    trained = build_model(spec.model, 10)
    trained.load_state_dict(torch.load(where.root / "faults" / "weights" / f"{cell.run_id}.pt", weights_only=True))
    assert (maps.images, maps.epochs) == (64, (0, 1))
    for found, model in ((maps.before_LHNN, initial), (maps.after_LHNN, trained)):
        assert found.shape == (spec.model.depth, spec.model.heads, 16, 16)
        np.testing.assert_allclose(found, own_attention(model, images_BCHW), rtol=2e-3, atol=1e-6)


def test_gram_matrices_are_inner_products_of_what_blocks_put_out(tmp_path):
    cell, where = cell_of("convit", tmp_path, epochs=3), setting(tmp_path / "run", keep_maps=True, maps_at=(2,))
    maps, spec = carried_out(cell, where, stop_at=1), cell.spec
    assert maps.epochs == (0, 2, 3)
    assert maps.grams_ELBnn.shape == (3, spec.model.depth, 4, 64, 64)
    data = open_data(spec.dataset, spec.model.image_size, tmp_path, "auto", "cpu")
    loader = make_loader(data, spec.recipe, spec.seed, torch.device("cpu"))
    chosen = torch.randperm(len(data.held_out.labels), generator=stream(0, "maps"))[64:128]
    model = build_model(spec.model, 10).eval()
    model.load_state_dict(torch.load(where.root / "faults" / "weights" / f"{cell.run_id}.pt", weights_only=True))
    with torch.no_grad():
        images_BCHW = loader.plain(chosen, "held_out")
        outputs = model.forward_intermediates(images_BCHW, output_fmt="NLC", intermediates_only=True)
    for layer, output_BND in enumerate(outputs):
        features = output_BND.flatten(1).double().numpy()
        features -= features.mean(0)
        np.testing.assert_allclose(maps.grams_ELBnn[2, layer, 1], features @ features.T, rtol=1e-4, atol=1e-3)


def test_epochs_that_are_named_too_late_cost_their_maps_only(tmp_path):
    """And maps that have been kept are not left out without a word."""
    cell, troubles = cell_of("mimetic", tmp_path, epochs=4), []

    def carried_on(until: int, **changes) -> None:
        stop = Stop()

        def listen(event: Event) -> None:
            troubles.extend([event.trouble] if event.trouble else [])
            if event.epoch and event.epoch.epoch == until:
                stop.request("a test")

        with contextlib.suppress(Stopped):
            carry_out(cell, setting(tmp_path / "run", **changes), stop, listen)

    carried_on(1, keep_maps=True)
    carried_on(2)
    assert troubles == ["the attention maps kept so far are not written: --keep-maps is not given any more"]
    carried_on(99, keep_maps=True, maps_at=(1, 2, 3))
    late = "attention maps of epoch 1, 2 are not kept: the run is past epoch 1, where it did not keep them"
    assert troubles[1:] == [late]
    record = Store(tmp_path / "run").read("faults").done[cell.run_id]
    assert read_maps(tmp_path / "run", record).epochs == (0, 3, 4)


def test_maps_without_those_of_the_end_are_not_written(tmp_path):
    """A reader would take the file for a damaged one."""
    images = SimpleNamespace(plain=lambda *asked: torch.zeros(64, 3, 8, 8))
    troubles: list[str] = []
    observer = Observer(images, 64, False, (0, 4), troubles.append)
    kept = {0: (torch.zeros(2, 2, 4, 4).half(), torch.zeros(2, 1, 4, 4))}
    observer.load_state_dict({"targets": None, "probes": [], "snapshots": kept}, 4)
    assert troubles == ["attention maps are not kept: the run is past epoch 4, where it did not keep them"]
    observer.keep("weights", tmp_path / "maps.npz")
    assert list(tmp_path.iterdir()) == []


def test_maps_that_cannot_be_written_cost_the_maps_only(tmp_path):
    cell, where = cell_of("mimetic", tmp_path, epochs=1), setting(tmp_path / "run", keep_maps=True)
    folder = maps_path(where.root, "faults", cell.run_id).parent
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    troubles = []
    carry_out(cell, where, Stop(), lambda event: troubles.append(event.trouble) if event.trouble else None)
    assert cell.run_id in Store(where.root).read("faults").done
    assert [text.partition(":")[0] for text in troubles] == ["the attention maps are not kept"]


@pytest.mark.parametrize(
    ("preset", "why"),
    [
        ("resmlp_micro", "ResMLP has no attention"),
        ("swin_micro", "Swin has layers that differ in heads or tokens"),
    ],
)
def test_a_model_whose_maps_cannot_be_kept_says_so(tmp_path, preset, why):
    model, where = {"preset": preset, "image_size": 8, "patch_size": 1}, setting(tmp_path / "run", keep_maps=True)
    cell = cell_of("mimetic", tmp_path, epochs=1)
    spec = cell.spec.model_copy(update={"model": resolve_model(model), "method": None})
    troubles: list[str] = []

    def listen(event: Event) -> None:
        troubles.extend([event.trouble] if event.trouble else [])

    carry_out(replace(cell, spec=spec), where, Stop(), listen)
    assert troubles == [f"attention maps are not kept: {why}"]
    (record,) = Store(where.root).read(where.study).done.values()
    assert len(record.probes) == (2 if preset == "swin_micro" else 0)
    assert not maps_path(where.root, where.study, record.run_id).exists()
