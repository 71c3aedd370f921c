"""Grids that nobody could carry out: refused in one line that says what is allowed, before anything is built."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.grids import grid
from vitinit.benchmark.models import registry as families
from vitinit.benchmark.models.vit import ViT
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError

SOUND: dict[str, Any] = {
    "title": "One run",
    "rows": {"Kaiming uniform": {"base": "kaiming_uniform"}},
    "blocks": [
        {
            "datasets": ["digits"],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 1},
            "recipe": {"name": "small", "epochs": 2},
            "seeds": [0],
        }
    ],
}


def refused(folder: Path, content: bytes | dict[str, Any]) -> str:
    """The one line about a grid."""
    path = folder / "bad.yaml"
    data = content if isinstance(content, bytes) else yaml.safe_dump(content, allow_unicode=True).encode()
    path.write_bytes(data)
    with pytest.raises(VitinitError) as info:
        grid.load(str(path))
    message = str(info.value)
    assert message.isprintable()
    assert len(message) < 1_000
    return message


def with_block(**changes: Any) -> dict[str, Any]:
    content = copy.deepcopy(SOUND)
    for name, value in changes.items():
        block = content["blocks"][0]
        block[name] = {**block[name], **value} if isinstance(value, dict) else value
    return content


def test_what_is_wrong_with_a_block_is_not_said_of_a_row(tmp_path: Path) -> None:
    for changes, message in (
        ({"model": {"preset": "vit_mico"}}, "unknown model 'vit_mico'; did you mean 'vit_micro'?"),
        ({"datasets": ["digts"]}, "unknown dataset 'digts'; did you mean 'digits'?"),
        ({"recipe": {"epochs": 0}}, "recipe 'small': epochs: "),
    ):
        assert refused(tmp_path, with_block(**changes)).startswith(f"grid 'bad', block 1: {message}")
    content = with_block()
    content["rows"]["Kaiming uniform"]["model"] = {"preset": "vit_mico"}
    assert refused(tmp_path, content).startswith("grid 'bad', row 'Kaiming uniform': unknown model 'vit_mico'")


@pytest.mark.parametrize("group", ["vitinit.initializers", "vitinit.datasets", "vitinit.models"])
def test_a_file_that_cannot_be_used_is_blamed_on_no_row(tmp_path: Path, monkeypatch, group: str) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nbroken = broken_module:NAME\n")
    (tmp_path / "broken_module.py").write_text("1 / 0")
    for each in (registry, datasets, families):
        monkeypatch.setattr(each.REGISTRY, "searched", False)
    monkeypatch.syspath_prepend(tmp_path)
    message = refused(tmp_path, with_block(model={"width": 36 + 12 * len(group)}))  # not asked before
    assert message.startswith("entry point 'broken' (broken_module:NAME) cannot be loaded: ZeroDivisionError: ")


BAD_MODELS: list[tuple[dict[str, Any], str]] = [
    ({"width": 10**9}, "would have 3.6e+19 parameters, at most 1e+11 are possible"),
    ({"width": 4 * 10**40}, "width: "),
    ({"width": True, "heads": 1}, "width: ... given: True"),
    ({"width": "48"}, "width: ... given: '48'"),
    ({"width": -48}, "width: "),
    ({"depth": 10**7}, "depth 10000000 is too large, at most 5,000 is possible"),
    ({"depth": 0}, "depth: "),
    ({"heads": 10**9}, "width 48 is not divisible by heads 1000000000"),
    ({"mlp_ratio": 1e12}, "at most 1e+11 are possible"),
    ({"mlp_ratio": 1e308}, "mlp_ratio: "),
    ({"mlp_ratio": 1e-300}, "mlp_ratio 1e-300 of width 48 leaves the MLP no feature"),
    ({"mlp_ratio": float("nan")}, "mlp_ratio: "),
    ({"image_size": 10**6}, "image_size 1000000 is too large, at most 16,384 is possible"),
    ({"image_size": 1}, "image_size 1 is too small, at least 2 is possible"),
    ({"preset": "convit_micro", "image_size": 4_000}, "makes 16,000,000 tokens, at most 1,000,000 are possible"),
    ({"preset": "convit_micro", "gpsa_layers": 10**9}, "gpsa_layers from 1 to one less than its depth 3"),
    ({"preset": "convmixer_micro", "kernel_size": 10**9}, "at most 1e+11 are possible"),
    ({"drop_rate": 1}, "drop_rate: "),
    ({"qkv_bias": "maybe"}, "qkv_bias: "),
]
BAD_RECIPES: list[tuple[dict[str, Any], str]] = [
    ({"epochs": 10**12}, "epochs: ... 100000"),
    ({"epochs": True}, "epochs: ... given: True"),
    ({"epochs": "1:30"}, "epochs: ... given: '1:30'"),
    ({"batch_size": 1_438}, "batch_size 1438 is more than the 1437 training images"),
    ({"warmup_epochs": 10**18}, "warmup_epochs: "),
    ({"warmup_epochs": 3}, "warmup_epochs 3 is more than epochs 2"),
    ({"crop_padding": 9}, "crop_padding 9 is more than image_size 8"),
    ({"lr": 1e308}, "lr: "),
    ({"lr": 0}, "lr: "),
    ({"min_lr": 1.0}, "min_lr 1 is more than lr 0.001"),
    ({"warmup_lr": 1.0}, "warmup_lr 1 is more than lr 0.001"),
    ({"weight_decay": float("inf")}, "weight_decay: "),
    ({"betas": [1, 0.9]}, "betas.1: "),
    ({"betas": [0.9]}, "betas.2: "),
    ({"hflip": True}, "hflip: ... given: True"),
    ({"mixup": 1e308}, "mixup: "),
    ({"evaluate_every": 10**18}, "evaluate_every: "),
    ({"rand_augment": "nonsense"}, "rand_augment: 'nonsense' is not as timm has it"),
    ({"rand_augment": "rand-m9-n1000000"}, "with N below 100"),
    ({"rand_augment": "rand-magnitude"}, "sections mN, nN"),
    ({"rand_augment": "rand-tfoo"}, "inc1 or tweights"),
    ({"rand_augment": "rand-p.."}, "sections mN, nN"),
    ({"rand_augment": "rand-mstd0.5.5"}, "sections mN, nN"),
    ({"precision": "fp8"}, "precision: ... bf16"),
    ({"mix_images": 8}, "both are off"),
    ({"mixup": 0.8, "mix_images": 1}, "mix_images: "),
    ({"cutmix": 1.0, "mix_images": 12}, "is not divisible by mix_images 12"),
    ({"crop_scale": [1.0, 0.08]}, "crop_scale is the least and the largest value"),
    ({"crop_scale": [0.0, 1.0]}, "crop_scale.1: "),
    ({"crop_scale": [0.5, 1.0], "crop_ratio": [2.0, 1.0]}, "crop_ratio is the least and the largest value"),
    ({"crop_ratio": [0.1, 10.0]}, "crop_scale is off"),
    ({"crop_pct": 0.0}, "crop_pct: "),
    ({"random_erasing": 1.5}, "random_erasing: "),
    ({"optimizer": "lino"}, "unknown optimizer 'lino'; did you mean 'lion'?"),
    ({"optimizer": "lbfgs"}, "optimizer 'lbfgs' needs a closure"),
    ({"optimizer": "adahessian"}, "optimizer 'adahessian' needs second derivatives"),
    ({"optimizer": {"momentum": 0.9}}, "optimizer: needs a name"),
    ({"optimizer": {"name": "sgd", "momentun": 0.9}}, "unknown field 'momentun'; did you mean 'momentum'?"),
    ({"optimizer": {"name": "sgd", "momentum": True}}, "optimizer 'sgd': momentum: ... given: True"),
    ({"optimizer": {"name": "sgd", "nesterov": 1}}, "optimizer 'sgd': nesterov: ... given: 1"),
    ({"optimizer": {"name": "lion", "betas": [0.9]}}, "optimizer 'lion': betas"),
    ({"optimizer": {"name": "lion", "betas": [0.9, 1.5]}}, "optimizer 'lion': Invalid beta parameter"),
    ({"optimizer": {"name": "muon", "algo": "muno"}}, "optimizer 'muon': "),
    ({"optimizer": {"name": "sgd", "lr": 0.1}}, "lr is a field of the recipe itself"),
    ({"optimizer": {"name": "sgd", "foreach": True}}, "foreach is not for a recipe to choose"),
    ({"optimizer": "lion", "betas": [0.9, 0.99]}, "betas is of the recipe's AdamW"),
    ({"optimizer": "rprop", "weight_decay": 0.05}, "optimizer 'rprop': rprop has no weight decay; the recipe"),
    ({"optimizer": "sparseadam"}, "takes sparse gradients"),
    ({"layer_decay": 0}, "layer_decay: "),
    ({"schedule": "cosin"}, "unknown schedule 'cosin'; did you mean 'cosine'?"),
    ({"schedule": {"power": 2.0}}, "schedule: needs a name"),
    ({"schedule": {"name": "polynomial", "powr": 2.0}}, "unknown field 'powr'; did you mean 'power'?"),
    ({"schedule": {"name": "wsd", "cooldown": 1.5}}, "schedule 'wsd': cooldown: "),
    ({"schedule": {"name": "wsd", "cooldown": 1.0}, "warmup_epochs": 1}, "schedule wsd decays in 2 of 2 epochs"),
]
BAD_DATASETS: list[tuple[dict[str, Any], str]] = [
    ({"name": "cifar10", "train_size": 50_001}, "train_size 50001 is more than the 50000 training images"),
    ({"name": "digits", "train_size": 1_400, "val_size": 38}, "train_size 1400 is more than the 1399"),
    ({"name": "digits", "val_size": 1_437}, "val_size 1437 leaves no image to train on"),
    ({"name": "cifar100", "train_size": 99}, "train_size 99 is less than its number of classes, 100"),
    ({"name": "digits", "train_size": True}, "train_size: ... given: True"),
    ({"name": "folder:"}, "path: "),
    ({"name": "folder:/a", "path": "/b"}, "dataset 'folder:/a': its path is there twice, '/a' and '/b'"),
    ({"name": "x" * 100_000}, "unknown dataset 'xxx"),
]
BAD_SEEDS: list[tuple[list[Any], str]] = [
    ([True], "seeds.1: ... given: True"),
    ([0, 0], "seed 0 is there twice"),
    ([1, 0, 1, 1], "seed 1 is there 3 times"),
    (["0"], "seeds.1: ... given: '0'"),
    ([1.5], "seeds.1: "),
    ([-1], "seeds.1: "),
    ([2**63], "seeds.1: "),
    (list(range(10_001)), "seeds: ... 10000"),
    ([], "blocks.1.seeds: "),
]
BAD_NAMES: list[tuple[object, str]] = [
    ("", "rows.''.[key]: is to be printable text on one line"),
    ("  ", "rows.' '.[key]: is to be printable text"),
    ("x" * 100_000, "[key]: ... 80 "),
    ("a\nb", "is to be printable text"),
    ("a\x1b[2Jb", "is to be printable text"),
    ("a\u202eb", "is to be printable text"),
    (1, "rows.1.[key]: "),
]
METHOD: dict[str, Any] = {"name": "impulse", "solver": {"name": "svd", "nrm": 1}}
BAD_FORMS: list[tuple[dict[str, Any], str]] = [
    (
        {"rows": {"A": "trunc_normal"}},
        "rows.A: must be a mapping with base, method, model, recipe (given: 'trunc_normal'",
    ),
    ({"rows": {}}, "rows: is empty, and must not be"),
    ({"rows": {"A": {"base": "zero"}}, "contrasts": [["A", "A"]]}, "contrasts: the row 'A' against itself"),
    ({"blocks": []}, "blocks: is empty, and must not be (given: "),
    ({"blocks": {"seeds": [0]}}, "blocks: must be a list"),
    ({"row": {}}, "unknown field 'row'; did you mean 'rows'? available: blocks, contrasts, rows, title"),
    (
        {"rows": {"A": {"base": "trunc_normal", "methods": "mimetic"}}},
        "rows.A: unknown field 'methods'; did you mean 'method'? available: base, method, model, recipe",
    ),
    (
        {"blocks": [{**SOUND["blocks"][0], "dataset": "digits"}]},
        "blocks.1: unknown field 'dataset'; did you mean 'datasets'? available: datasets, model, recipe, seeds",
    ),
    ({"rows": {"A": {"base": "trunc_normal", "method": {"beta_qk": 0.5}}}}, "rows.A.method: needs a name: NAME, or "),
    ({"rows": {"A": {"base": ["trunc_normal"]}}}, "rows.A.base: must be a mapping (given: "),
    (
        {"rows": {"A": {"base": "zero", "method": METHOD}}},
        "solver.svd: unknown field 'nrm'; did you mean 'norm'? available: name, noise, noise_std, norm, signal",
    ),
    ({"title": "x" * 100_000}, "title: ... 1000 "),
]
BAD_METHODS: list[tuple[dict[str, Any], str]] = [
    ({"name": "mimetic", "alpha_qk": True}, "alpha_qk is a number, not true or false"),
    ({"name": "impulse", "solver": {"name": "gradient", "steps": True}}, "solver.steps is a number, not true"),
    ({"name": "impulse", "solver": {"name": "gradient", "steps": 10**18}}, "1e+07"),
    ({"name": "impulse", "kernel_size": 10**9 + 1}, "kernel_size 1000000001 is larger than the token grid 8x8"),
    ({"name": "x" * 100_000}, "unknown method 'xxx"),
]


def row(**fields: Any) -> dict[str, Any]:
    return {**SOUND, "rows": {"Row": {"base": "kaiming_uniform", **fields}}}


BAD = {
    "model": [(with_block(model=model), words) for model, words in BAD_MODELS],
    "recipe": [(with_block(recipe=recipe), words) for recipe, words in BAD_RECIPES],
    "dataset": [(with_block(datasets=[dataset]), words) for dataset, words in BAD_DATASETS],
    "seeds": [(with_block(seeds=seeds), words) for seeds, words in BAD_SEEDS],
    "name of a row": [({**SOUND, "rows": {name: {"base": "zero"}}}, words) for name, words in BAD_NAMES],
    "form": [({**SOUND, **changes}, words) for changes, words in BAD_FORMS],
    "method": [(row(method=method), words) for method, words in BAD_METHODS],
}


@pytest.mark.parametrize("part", BAD)
def test_what_cannot_be_is_refused(tmp_path: Path, part: str) -> None:
    for content, words in BAD[part]:
        said = refused(tmp_path, content)
        assert re.search(".*".join(map(re.escape, words.split(" ... "))), said), said
        assert "pydantic" not in said
        assert "dictionary" not in said


def test_a_name_that_a_record_would_refuse_is_none_of_a_folder() -> None:
    """Two engines read the pattern, `re` and pydantic's own: a run would be trained and then not be recorded."""
    for name in ("r²", "½", "①", "a b", "..", "a/b"):
        assert not is_folder_name(name), name
    assert is_folder_name("größe-1.2_x")


def test_more_runs_than_can_be_listed(tmp_path: Path) -> None:
    rows = {str(number): {"base": {"name": "trunc_normal", "std": 0.01 + number / 1e6}} for number in range(11)}
    content = with_block(seeds=list(range(10_000)))
    assert "has 110,000 runs, at most 100,000 are possible" in refused(tmp_path, {**content, "rows": rows})


def test_a_file_that_is_none_or_has_no_end(tmp_path: Path) -> None:
    sound = yaml.safe_dump(SOUND).encode()
    (tmp_path / "sound.yaml").write_bytes(sound)
    assert len(grid.load(str(tmp_path / "sound.yaml")).cells) == 1, "what the others differ from"
    assert "has more than 1,048,576 bytes" in refused(tmp_path, b"# " + b"x" * 2**20 + b"\n" + sound)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(VitinitError, match="pipe.yaml: is not a file"):
        grid.load(str(tmp_path / "pipe.yaml"))


# --- what the limits leave possible ---


def test_large_deep_and_long_models_are_possible() -> None:
    large = ViT(image_size=224, patch_size=14, width=6144, depth=48, heads=48)
    assert large.size == pytest.approx(48 * 12 * 6144**2, rel=0.01), "of the size of ViT-22B"
    ViT(image_size=32, patch_size=4, width=48, depth=5_000, heads=4)
    ViT(image_size=1024, patch_size=4, width=768, depth=12, heads=12)
