"""Weight selection: an independent selection in numpy and fractions, files that are none, identity by content."""

from __future__ import annotations

import hashlib
import pickle
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from small_models import VIT, VIT_TOKEN, differing, f64, larger_checkpoint, model, refused, silent, state
from torch import Tensor, nn

import vitinit
from tests.runners.small_run import spec
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers import registry
from vitinit.initializers.methods.weight_selection import evenly


def places(larger: int, smaller: int) -> list[int]:
    """As the released code where the size divides; else k (T - 1) / (S - 1), which Python rounds half to even."""
    if larger % smaller == 0:
        return list(range(0, larger, larger // smaller))
    return [round(Fraction(k * (larger - 1), smaller - 1)) for k in range(smaller)]


def selected(theirs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return theirs[np.ix_(*(places(*sizes) for sizes in zip(theirs.shape, shape, strict=True)))] if shape else theirs


def saved(m: nn.Module | dict[str, Any], path: Path) -> Path:
    torch.save(m.state_dict() if isinstance(m, nn.Module) else m, path)
    return path


def drawn(spec: Any = VIT, seed: int = 0, **changes: Any) -> Any:
    """A model of which every number is its own."""
    m = model(spec, seed, **changes)
    with torch.no_grad():
        for number, tensor in enumerate((*m.parameters(), *m.buffers())):
            tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(100 * seed + number)))
    return m


def select(m: nn.Module, path: Path, **params: Any) -> None:
    method = registry.build("weight_selection", {"weights": str(path), **params})
    method.check(m)
    method.apply(m, torch.Generator(), silent)


SIZES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"width": 384, "heads": 6}, {"width": 192, "heads": 3}),  # ViT-S to ViT-T
    ({"width": 35, "depth": 4, "heads": 5, "mlp_ratio": 3.0}, {"width": 21, "depth": 1, "heads": 3, "mlp_ratio": 2.5}),
    ({"width": 53, "heads": 1}, {"width": 51, "heads": 17}),
    ({"patch_size": 4, "layer_scale": 0.1}, {"image_size": 16, "patch_size": 2}),
]


@pytest.mark.parametrize(("theirs", "ours"), SIZES)
def test_every_tensor_is_evenly_selected_but_the_classifier(
    theirs: dict[str, Any], ours: dict[str, Any], tmp_path: Path
) -> None:
    larger, m = drawn(VIT_TOKEN, 1, **theirs), drawn(VIT_TOKEN, 2, **ours)
    before = state(m)
    select(m, saved(larger, tmp_path / "larger.pt"))
    for name, tensor in m.state_dict().items():
        if name.startswith("head."):
            assert torch.equal(tensor, before[name])
        else:
            expected = selected(f64(larger.state_dict()[name]), tuple(tensor.shape))
            np.testing.assert_array_equal(f64(tensor), expected, err_msg=name)


@pytest.mark.parametrize("smaller", [1, 23, 192])  # of 48 and 94, 23 are not quite those of fractions
def test_places_are_those_of_fractions_but_for_the_rounding_of_the_released_code(smaller: int) -> None:
    for larger in (*range(smaller, 120), *(size for size in (384, 768, 1000, 2304) if size >= smaller)):
        found = evenly(larger, smaller).tolist()
        assert len(set(found)) == smaller, "none is there twice"
        assert np.abs(np.subtract(found, places(larger, smaller))).max() <= (larger % smaller > 0)
        if larger % smaller:
            assert found == torch.round(torch.linspace(0, larger - 1, smaller)).long().tolist()
            assert np.abs(np.linspace(0, larger - 1, smaller) - found).max() <= 0.5 + 1e-3


@pytest.mark.parametrize(("wide", "narrow"), [(35, 21), (48, 24)])
def test_per_matrix_selects_the_same_rows_of_query_key_and_value(wide: int, narrow: int, tmp_path: Path) -> None:
    larger, m, fused = (drawn(VIT_TOKEN, seed, width=w, heads=1) for seed, w in ((1, wide), (2, narrow), (2, narrow)))
    path = saved(larger, tmp_path / "larger.pt")
    select(m, path, qkv="per_matrix")
    select(fused, path)
    rows = [part * wide + row for part in range(3) for row in places(wide, narrow)]
    for block, theirs in zip(m.blocks, larger.blocks, strict=True):
        weight, bias = f64(theirs.attn.qkv.weight), f64(theirs.attn.qkv.bias)
        np.testing.assert_array_equal(f64(block.attn.qkv.weight), weight[np.ix_(rows, places(wide, narrow))])
        np.testing.assert_array_equal(f64(block.attn.qkv.bias), bias[rows])
    expected = {f"blocks.{i}.attn.qkv.{end}" for i in (0, 1) for end in ("weight", "bias")}
    assert differing(state(m), state(fused)) == (expected if wide % narrow else set()), "the rest is as in the code"


def test_per_matrix_a_bias_of_one_matrix_is_selected_as_one(tmp_path: Path) -> None:
    """BEiT has biases of queries and values, and none of keys."""
    sizes = {**zoo.SMALL, "qkv_bias": True, "use_abs_pos_emb": True}
    larger, m = (zoo.timm("beit.Beit", **{**sizes, "embed_dim": width})() for width in (80, 48))
    for bias in (larger.blocks[1].attn.q_bias, larger.blocks[1].attn.v_bias):
        nn.init.normal_(bias)
    select(m, saved(larger, tmp_path / "larger.pt"), qkv="per_matrix")
    for name in ("q_bias", "v_bias"):
        ours, theirs = (f64(getattr(each.blocks[1].attn, name)) for each in (m, larger))
        np.testing.assert_array_equal(ours, theirs[places(80, 48)])


ALSO = {"timm Swin", "timm ConvMixer", "torchvision ViT", "Hugging Face ViT"}


@pytest.mark.parametrize("name", sorted(ALSO))
def test_in_every_library_a_checkpoint_of_the_same_size_comes_whole(name: str, tmp_path: Path) -> None:
    larger, m = zoo.build(name, 1), zoo.build(name, 2)
    with torch.no_grad():
        for tensor in larger.parameters():
            tensor.add_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(3)))
    vitinit.initialize(m, "weight_selection", weights=saved(larger, tmp_path / "larger.pt"))
    assert differing(state(larger), state(m)) <= {n for n in state(m) if "head" in n or "classifier" in n}
    assert differing(state(larger), state(m)), "its own classifier"


def test_the_door_takes_a_path_and_a_placebo_keeps_sizes() -> None:
    path, m, placebo = larger_checkpoint(), model(seed=1), model(seed=1)
    report = vitinit.initialize(m, "weight_selection", weights=str(path), base="trunc_normal")
    assert report.method["weights"] == {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    of = {"name": "weight_selection", "weights": path}
    vitinit.initialize(placebo, "placebo", of=of, base="trunc_normal")
    weight, other = (f64(each.blocks[0].mlp.fc1.weight) for each in (m, placebo))
    assert np.abs(weight - other).max() > 0.1
    np.testing.assert_allclose(*(np.linalg.svd(w, compute_uv=False) for w in (weight, other)), rtol=1e-4)


def half(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.half() for name, tensor in tensors.items()}


@pytest.mark.parametrize("form", ["model", "state_dict", "half", "safetensors", "old"])
def test_checkpoints_come_in_several_forms(form: str, tmp_path: Path) -> None:
    larger, m, other = drawn(width=96, seed=1), model(), model()
    tensors = state(larger)
    path = tmp_path / ("larger.safetensors" if form == "safetensors" else "larger.pt")
    if form == "safetensors":
        from safetensors.torch import save_file

        save_file(tensors, path)
    elif form == "old":
        torch.save(tensors, path, _use_new_zipfile_serialization=False)
    else:
        saved(half(tensors) if form == "half" else {form: tensors, "epoch": 3, "lr": [0.1]}, path)
    select(m, path)
    select(other, saved(half(tensors) if form == "half" else tensors, tmp_path / "plain.pt"))
    assert differing(state(m), state(other)) == set()
    assert differing(state(m), state(model())) != set()


class Executed:
    """What a pickle may do to those who load it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


DAMAGED = "is damaged, or holds more than tensors"
BAD = {
    "not there": (lambda path: None, "No such file"),
    "a folder": (lambda path: path.mkdir(), "is not a file"),
    "text": (lambda path: path.write_text("weights"), DAMAGED),
    "cut off": (lambda path: path.write_bytes(larger_checkpoint().read_bytes()[:-500]), DAMAGED),
    "code": (lambda path: path.write_bytes(pickle.dumps(Executed(path.with_name("executed")), protocol=2)), DAMAGED),
    "a whole model": (lambda path: torch.save(model(), path), "holds more than tensors .*state_dict"),
    "no tensor": (lambda path: torch.save({"model": {"epoch": 3}}, path), "holds no tensors by name"),
    "integers": (
        lambda path: torch.save({name: value.int() for name, value in model().state_dict().items()}, path),
        "pos_embed as torch.int32: weights of a float type are needed",
    ),
    "not finite": (
        lambda path: torch.save({**model().state_dict(), "norm.weight": torch.ones(1)} | nan(), path),
        "values that are not finite in 'patch_embed.proj.bias'",
    ),
    "narrower": (
        lambda path: saved(model(width=24), path),
        "pos_embed of 1 x 64 x 24, which must be no smaller than 1 x 64 x 48",
    ),
    "fewer blocks": (lambda path: saved(model(depth=1), path), r"has no blocks\.1\.norm1\.weight: .* fewer blocks"),
    "no biases": (lambda path: saved(model(qkv_bias=False), path), r"has no blocks\.0\.attn\.qkv\.bias"),
    "more tokens": (lambda path: saved(model(image_size=40), path), "positions of 100 tokens, and the model has 64"),
    "a class token": (lambda path: saved(drawn(VIT_TOKEN), path), "positions of 65 tokens, and the model has 64"),
}


def nan() -> dict[str, Tensor]:
    return {"patch_embed.proj.bias": torch.full((48,), float("nan"))}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_selected_from_is_one_line_before_anything_is_changed(what: str, tmp_path: Path) -> None:
    write, says = BAD[what]
    path = tmp_path / "larger.pt"
    write(path)
    refused(model(), f"weight.*{says}|{says}.*weight", "weight_selection", weights=path, base="trunc_normal")
    assert not (tmp_path / "executed").exists()


def test_a_file_counts_by_its_content_and_not_by_its_path(tmp_path: Path) -> None:
    path, copy = shutil.copy(larger_checkpoint(), tmp_path / "one.pt"), tmp_path / "other" / "two.pt"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    other = saved({**torch.load(path), "norm.bias": torch.ones(3)}, tmp_path / "three.pt")

    def run_ids(file: Path) -> list[str]:
        methods = [{"weights": str(file)}, {"weights": str(file), "qkv": "per_matrix"}]
        built = [InitializerSpec(name="weight_selection", params=recorded("weight_selection", one)) for one in methods]
        of = {"name": "weight_selection", "weights": str(file)}
        built.append(InitializerSpec(name="placebo", params=recorded("placebo", {"of": of})))
        return [spec(method=one).run_id for one in built]

    assert len({*run_ids(path)}) == 3
    assert run_ids(path) == run_ids(copy)
    assert not {*run_ids(path)} & {*run_ids(other)}
    plain = InitializerSpec(name="weight_selection", params=recorded("weight_selection", {"weights": str(path)}))
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f'"weights":{{"sha256":"{sha256}"}}' in spec(method=plain).canonical()
    assert plain.params["weights"]["path"] == str(path), "the record says where it lay"


def recorded(name: str, params: dict[str, Any]) -> dict[str, Any]:
    return registry.build(name, params).recorded_params()


def test_a_file_that_has_changed_since_it_was_named_is_refused(tmp_path: Path) -> None:
    path = Path(shutil.copy(larger_checkpoint(), tmp_path / "one.pt"))
    params = recorded("weight_selection", {"weights": str(path)})
    saved(drawn(width=96), path)
    method = registry.build("weight_selection", params)
    with pytest.raises(vitinit.VitinitError, match="is another file now: its sha256 begins with"):
        method.check(model())


def test_per_matrix_changes_nothing_where_there_is_no_attention(tmp_path: Path) -> None:
    m, fused = (zoo.build("timm MLP-Mixer") for _ in range(2))
    path = saved(
        zoo.timm("mlp_mixer.MlpMixer", **{**zoo.SIZE, "patch_size": 8, "num_blocks": 3, "embed_dim": 72})(),
        tmp_path / "larger.pt",
    )
    select(m, path, qkv="per_matrix")
    select(fused, path)
    assert not differing(state(m), state(fused))
