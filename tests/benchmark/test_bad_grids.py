"""Grids that nobody could carry out: refused in one line that says what is allowed, before anything is built."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmark.datasets import registry as datasets
from benchmark.fields import is_folder_name
from benchmark.grids import grid
from benchmark.grids.resolve import resolve_model
from benchmark.models import registry as families
from benchmark.models.build import build_model, parameter_count
from benchmark.models.vit import ViT
from initializers import registry
from initializers.errors import VitinitError

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
CONVIT = {"preset": "convit_micro"}
CONVMIXER = {"preset": "convmixer_micro"}


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


def test_the_grid_that_the_others_differ_from_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "sound.yaml"
    path.write_text(yaml.safe_dump(SOUND))
    assert len(grid.load(str(path)).cells) == 1


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


def test_places_in_lists_count_from_1_and_numbers_that_are_names_stay(tmp_path: Path) -> None:
    assert "blocks.1.seeds: " in refused(tmp_path, with_block(seeds=[]))
    content = {**with_block(), "rows": {7: {"base": "kaiming_uniform"}}}
    assert "rows.7.[key]: " in refused(tmp_path, content)


@pytest.mark.parametrize("group", ["vitinit.initializers", "vitinit.datasets", "vitinit.models"])
def test_a_file_that_cannot_be_used_is_blamed_on_no_row(tmp_path: Path, monkeypatch, group: str) -> None:
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nbroken = broken_module:NAME\n")
    (tmp_path / "broken_module.py").write_text("1 / 0")
    caches = registry._discover, datasets._found, families.families
    try:
        for cache in caches:
            cache.cache_clear()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path)
            message = refused(tmp_path, with_block(model={"width": 36 + 12 * len(group)}))  # not asked before
    finally:
        for cache in caches:
            cache.cache_clear()
    assert message.startswith("entry point 'broken' (broken_module:NAME) cannot be loaded: ZeroDivisionError: ")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"width": 10**9}, "would have 3.6e+19 parameters, at most 1e+11 are possible"),
        ({"width": 10**9, "heads": 10**9}, "at most 1e+11 are possible"),
        ({"width": 4 * 10**40}, "width: Input should be less than or equal to 1e+12"),
        ({"depth": 10**7}, "depth 10000000 is too large, at most 5,000 is possible"),
        ({"heads": 10**9}, "width 48 is not divisible by heads 1000000000"),
        ({"mlp_ratio": 1e12}, "at most 1e+11 are possible"),
        ({"mlp_ratio": 1e308}, "mlp_ratio: Input should be less than or equal to 1e+30"),
        ({"mlp_ratio": 1e-300}, "mlp_ratio 1e-300 of width 48 leaves the MLP no feature"),
        ({"mlp_ratio": float("nan")}, "mlp_ratio: Input should be a finite number"),
        ({"image_size": 10**6}, "image_size 1000000 is too large, at most 16,384 is possible"),
        ({"image_size": 10**30, "patch_size": 10**30}, "image_size: Input should be less than or equal to 1e+12"),
        ({**CONVIT, "image_size": 4_000}, "makes 16,000,000 tokens, at most 1,000,000 are possible"),
        ({**CONVIT, "gpsa_layers": 10**9}, "convit needs gpsa_layers from 1 to one less than its depth 3"),
        ({**CONVMIXER, "kernel_size": 10**9}, "at most 1e+11 are possible"),
        ({"width": True, "heads": 1}, "width: Input should be a valid integer (given: True)"),
        ({"image_size": 1}, "image_size 1 is too small, at least 2 is possible"),
        ({"width": "48"}, "width: Input should be a valid integer (given: '48')"),
        ({"width": -48}, "width: Input should be greater than 0"),
        ({"depth": 0}, "depth: Input should be greater than 0"),
        ({"drop_rate": 1}, "drop_rate: Input should be less than 1"),
        ({"qkv_bias": "maybe"}, "qkv_bias: Input should be a valid boolean"),
    ],
)
def test_a_model_that_cannot_be(tmp_path: Path, model: dict[str, Any], message: str) -> None:
    assert message in refused(tmp_path, with_block(model=model))


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"epochs": 10**12}, "epochs: Input should be less than or equal to 100000"),
        ({"epochs": True}, "epochs: Input should be a valid integer (given: True)"),
        ({"epochs": "1:30"}, "epochs: Input should be a valid integer (given: '1:30')"),
        ({"batch_size": 10**12}, "batch_size 1000000000000 is more than the 1437 training images"),
        ({"batch_size": 1_438}, "batch_size 1438 is more than the 1437 training images"),
        ({"warmup_epochs": 10**18}, "warmup_epochs: Input should be less than or equal to 1e+12"),
        ({"warmup_epochs": 3}, "warmup_epochs 3 is more than epochs 2"),
        ({"crop_padding": 10**9}, "crop_padding 1000000000 is more than image_size 8"),
        ({"lr": 1e308}, "lr: Input should be less than or equal to 1e+30"),
        ({"lr": 0}, "lr: Input should be greater than 0"),
        ({"min_lr": 1.0}, "min_lr 1 is more than lr 0.001"),
        ({"warmup_lr": 1.0}, "warmup_lr 1 is more than lr 0.001"),
        ({"weight_decay": float("inf")}, "weight_decay: Input should be a finite number"),
        ({"betas": [1, 0.9]}, "betas.1: Input should be less than 1"),
        ({"betas": [0.9]}, "betas.2: Field required"),
        ({"hflip": True}, "hflip: Input should be a valid number (given: True)"),
        ({"mixup": 1e308}, "mixup: Input should be less than or equal to 1e+30"),
        ({"evaluate_every": 10**18}, "evaluate_every: Input should be less than or equal to 1e+12"),
        ({"rand_augment": "nonsense"}, "rand_augment 'nonsense' is not as timm has it"),
        ({"rand_augment": "rand-m9-n1000000"}, "with N below 100"),
        ({"rand_augment": "rand-magnitude"}, "sections mN, nN"),
        ({"rand_augment": "rand-tfoo"}, "inc1 or tweights"),
        ({"rand_augment": "rand-p.."}, "sections mN, nN"),
        ({"rand_augment": "rand-m9-mstd."}, "sections mN, nN"),
        ({"rand_augment": "rand-mstd0.5.5"}, "sections mN, nN"),
        ({"precision": "fp8"}, "precision: Input should be 'fp32', 'bf16' or 'fp16'"),
    ],
)
def test_a_recipe_that_cannot_be(tmp_path: Path, recipe: dict[str, Any], message: str) -> None:
    assert message in refused(tmp_path, with_block(recipe=recipe))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"name": "digits", "train_size": 1_438}, "train_size 1438 is more than the 1437 training images there are"),
        ({"name": "cifar10", "train_size": 50_001}, "train_size 50001 is more than the 50000 training images"),
        ({"name": "digits", "train_size": 1_400, "val_size": 38}, "train_size 1400 is more than the 1399"),
        ({"name": "digits", "val_size": 1_437}, "val_size 1437 leaves no image to train on"),
        ({"name": "cifar100", "train_size": 99}, "train_size 99 is less than its number of classes, 100"),
        ({"name": "digits", "train_size": True}, "train_size: Input should be a valid integer (given: True)"),
        ({"name": "folder:"}, "path: String should have at least 1 character"),
        ({"name": "folder:/a", "path": "/b"}, "dataset 'folder:/a': its path is there twice, '/a' and '/b'"),
        ({"name": "x" * 100_000}, "unknown dataset 'xxx"),
    ],
)
def test_a_dataset_that_cannot_be(tmp_path: Path, dataset: dict[str, Any], message: str) -> None:
    assert message in refused(tmp_path, with_block(datasets=[dataset]))


@pytest.mark.parametrize("name", ["r²", "½", "①", "a b", "..", "a/b"])
def test_a_name_that_a_record_would_refuse_is_none_of_a_folder(name: str) -> None:
    """Two engines read the pattern, `re` and pydantic's own: a run would be trained and then not be recorded."""
    assert not is_folder_name(name)
    assert is_folder_name(f"größe-1.{len(name)}_x")


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([True], "seeds.1: Input should be a valid integer (given: True)"),
        ([0, 0], "seed 0 is there twice"),
        ([1, 0, 1, 1], "seed 1 is there 3 times"),
        (["0"], "seeds.1: Input should be a valid integer (given: '0')"),
        ([1.5], "seeds.1: Input should be a valid integer"),
        ([-1], "seeds.1: Input should be greater than or equal to 0"),
        ([2**63], "seeds.1: Input should be less than 9223372036854775808"),
        (list(range(10_001)), "seeds: List should have at most 10000 items"),
    ],
)
def test_seeds_that_cannot_be(tmp_path: Path, seeds: list[Any], message: str) -> None:
    assert message in refused(tmp_path, with_block(seeds=seeds))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "rows.''.[key]: is to be printable text on one line"),
        ("  ", "rows.' '.[key]: is to be printable text"),
        ("x" * 100_000, "[key]: String should have at most 80 characters"),
        ("a\nb", "is to be printable text"),
        ("a\x1b[2Jb", "is to be printable text"),
        ("a\u202eb", "is to be printable text"),
        (1, "rows.1.[key]: Input should be a valid string"),
    ],
)
def test_a_name_of_a_row_that_cannot_be_shown(tmp_path: Path, name: object, message: str) -> None:
    assert message in refused(tmp_path, {**SOUND, "rows": {name: {"base": "kaiming_uniform"}}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rows": {"A": "trunc_normal"}},
            "rows.A: must be a mapping with base, method, model, recipe (given: 'trunc_normal')",
        ),
        ({"rows": {}}, "rows: is empty, and must not be"),
        ({"blocks": []}, "blocks: is empty, and must not be (given: [])"),
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
        (
            {"rows": {"A": {"base": "trunc_normal", "method": {"beta_qk": 0.5}}}},
            "rows.A.method: needs a name: NAME, or {name: NAME, ...}",
        ),
        ({"rows": {"A": {"base": ["trunc_normal"]}}}, "rows.A.base: must be a mapping (given: ['trunc_normal'])"),
        (
            {"rows": {"A": {"base": "zero", "method": {"name": "impulse", "solver": {"name": "svd", "nrm": 1}}}}},
            "solver.svd: unknown field 'nrm'; did you mean 'norm'? available: name, noise, noise_std, norm, signal",
        ),
    ],
)
def test_what_is_wrong_in_its_form_is_said_in_plain_words(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    said = refused(tmp_path, {**SOUND, **changes})
    assert message in said
    assert "pydantic" not in said
    assert "dictionary" not in said


def test_a_title_of_endless_length(tmp_path: Path) -> None:
    assert "title: String should have at most 1000 characters" in refused(tmp_path, {**SOUND, "title": "x" * 100_000})


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "mimetic", "alpha_qk": True}, "alpha_qk is a number, not true or false"),
        ({"name": "impulse", "solver": {"name": "gradient", "steps": True}}, "solver.steps is a number, not true"),
        ({"name": "impulse", "solver": {"name": "gradient", "steps": 10**18}}, "less than or equal to 1e+07"),
        ({"name": "impulse", "kernel_size": 10**9 + 1}, "kernel_size 1000000001 is larger than the token grid 8x8"),
        ({"name": "x" * 100_000}, "unknown method 'xxx"),
    ],
)
def test_parameters_of_a_method_that_cannot_be(tmp_path: Path, method: dict[str, Any], message: str) -> None:
    rows = {"Row": {"base": "kaiming_uniform", "method": method}}
    assert message in refused(tmp_path, {**SOUND, "rows": rows})


def test_more_runs_than_can_be_listed(tmp_path: Path) -> None:
    rows = {str(number): {"base": {"name": "trunc_normal", "std": 0.01 + number / 1e6}} for number in range(11)}
    content = with_block(seeds=list(range(10_000)))
    assert "has 110,000 runs, at most 100,000 are possible" in refused(tmp_path, {**content, "rows": rows})


def test_a_file_that_is_none_or_has_no_end(tmp_path: Path) -> None:
    sound = yaml.safe_dump(SOUND).encode()
    assert "has more than 1,048,576 bytes" in refused(tmp_path, b"# " + b"x" * 2**20 + b"\n" + sound)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(VitinitError, match="pipe.yaml: is not a file"):
        grid.load(str(tmp_path / "pipe.yaml"))


# --- what the limits leave possible ---


@pytest.mark.parametrize(
    "fields",
    [
        {"preset": "vit_tiny", "image_size": 32, "patch_size": 2},
        {"preset": "vit_small", "image_size": 224, "patch_size": 16, "mlp_ratio": 2.5, "position": "learned"},
        {"preset": "convit_small", "image_size": 224, "patch_size": 16},
        {"preset": "convmixer_512_6", "image_size": 32, "patch_size": 2, "kernel_size": 9},
    ],
    ids=lambda fields: fields["preset"],
)
def test_the_size_is_about_that_of_timms_model(fields: dict[str, Any]) -> None:
    spec = resolve_model(fields)
    model = build_model(spec, classes=10)
    with_embedding = parameter_count(model) + sum(
        buffer.numel() for name, buffer in model.named_buffers() if "pos" in name
    )
    assert spec.size == pytest.approx(with_embedding, rel=0.02)


def test_large_deep_and_long_models_are_possible() -> None:
    large = ViT(image_size=224, patch_size=14, width=6144, depth=48, heads=48)
    assert large.size == pytest.approx(48 * 12 * 6144**2, rel=0.01), "of the size of ViT-22B"
    ViT(image_size=32, patch_size=4, width=48, depth=5_000, heads=4)
    ViT(image_size=1024, patch_size=4, width=768, depth=12, heads=12)
