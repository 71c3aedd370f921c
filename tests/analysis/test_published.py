"""The published numbers: that all are there, beside which runs of ours they stand, and what is wrong in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic_records import IMPULSE as SOLVED
from synthetic_records import MIMETIC, finished, spec, write

from vitinit.analysis.frame import load
from vitinit.analysis.published import FOLDER, IMAGES, lookup, publication
from vitinit.analysis.tables.registry import build
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.grids import fitting, grid
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import VitinitError

IMPULSE = {"kernel_size": 3, **SOLVED}
VIT_T = {"image_size": 32, "patch_size": 2, "width": 192, "depth": 12, "heads": 3}


def run(
    method: str | None = None,
    params: dict[str, Any] | None = None,
    *,
    base: str = "kaiming_uniform",
    std: float = 0.02,
    epochs: int = 200,
    dataset: dict[str, Any] | None = None,
    **model: Any,
) -> RunSpec:
    """A run in the setting of arXiv 2404.01139's Table 2, column CIFAR-10, but for what is named."""
    return RunSpec.model_validate(
        {
            "dataset": {"name": "cifar10", **(dataset or {})},
            "model": VIT_T | model,
            "base": {"name": base, "params": {"std": std} if base == "trunc_normal" else {}},
            "method": {"name": method, "params": params or {}} if method else None,
            "recipe": {"name": "structured2404", "epochs": epochs, "batch_size": 512, "lr": 1e-3},
            "seed": 0,
        }
    )


def value(spec: RunSpec, study: str = "") -> float | None:
    found = lookup(spec, study)
    return found.value if found else None


# --- which number stands beside which run of a grid ---

TABLE_2 = {
    "Kaiming uniform": (86.36, 63.50, 94.51, 74.11),
    "Trunc normal": (88.63, 66.50, 93.20, 73.42),
    "Mimetic, as released": (91.16, 70.40, 97.53, 74.34),
    "Imp.-3": (91.62, 68.81, 97.21, 74.24),
    "Imp.-5": (90.67, 70.46, 97.23, 74.40),
}
COLUMNS = ("cifar10", "cifar100", "svhn", "imagenet")
BESIDE_TABLE_2 = {(row, name): x for row, values in TABLE_2.items() for name, x in zip(COLUMNS, values, strict=True)}
FRACTIONS = ("imagenet[64058]", "imagenet[128116]", "imagenet[384350]", "imagenet[640583]", "imagenet")
ABLATION = {
    "a ConViT": (82.2, 59.7),
    "b no gating": (82.0, 57.4),
    "c no conv init": (81.4, 56.9),
    "d no gating, no conv init": (81.6, 54.6),
    "e DeiT": (79.1, 47.8),
    "f frozen GPSA": (78.6, 54.3),
    "g frozen GPSA, no conv init": (73.7, 44.8),
}
BESIDE: dict[str, dict[tuple[str, str], float]] = {
    "table2": BESIDE_TABLE_2,
    "table2-crossed": BESIDE_TABLE_2,
    "table4": {
        ("Kaiming uniform", "cifar10, convmixer 256, kernel 3"): 91.76,
        ("Kaiming uniform", "cifar10, convmixer 512, kernel 3"): 92.82,
        ("Trunc normal", "cifar10, vit 256, heads 8"): 87.27,
    },
    "table6": {
        ("Kaiming uniform", "cifar10, vit 192, heads 3"): 86.36,  # Table 2 has the same setting
        ("PE/PE", "cifar10, vit 192, heads 3"): 90.75,
    },
    "ablations": {("Kaiming uniform", "cifar10"): 86.36, ("Gradient, 10000 steps", "cifar10"): 91.62},
    "table-neurips": {
        (row, dataset): x
        for row, numbers in {
            "Default": (77.93, 92.27, 71.84, 62.26, 64.39, 28.71),
            "Mimetic": (82.11, 93.15, 74.59, 67.82, 72.0, 46.82),
            "Impulse": (81.64, 94.6, 76.5, 70.24, 73.1, 48.85),
        }.items()
        for dataset, x in zip(("food101", "cifar10", "cifar100", "stl10", "flowers", "pets"), numbers, strict=True)
    },
    "convit-models": {
        ("Ti: DeiT", "imagenet"): 72.2,
        ("Ti: ConViT", "imagenet"): 73.1,
        ("S: DeiT", "imagenet"): 79.8,
        ("S: ConViT", "imagenet"): 81.3,
        ("B: DeiT", "imagenet"): 81.8,
        ("B: ConViT", "imagenet"): 82.4,
    },
    "convit-efficiency": {
        **dict(zip([("DeiT", label) for label in FRACTIONS], (34.8, 48.0, 66.1, 74.6, 79.9), strict=True)),
        **dict(zip([("ConViT", label) for label in FRACTIONS], (47.8, 59.6, 73.7, 78.2, 81.4), strict=True)),
    },
    "convit-ablation": {
        (row, label): x
        for row, pair in ABLATION.items()
        for label, x in zip(("imagenet", "imagenet[128116]"), pair, strict=True)
    },
}
"""Copied by hand from the papers' tables (grid: row and column to number); every other cell of every grid is empty."""


@pytest.mark.long
def test_what_stands_beside_the_runs_of_a_grid(monkeypatch):
    """Only a cell that has a number is asked whether its method fits the model: asking takes the longest."""
    fits = fitting.misfit
    monkeypatch.setattr(fitting, "misfit", lambda *_: "")
    for name in grid.names():
        several = name in ("table4", "table6")
        found = {}
        cells = grid.load(name).cells
        seeds = sorted({cell.spec.seed for cell in cells})[:2]
        for cell in (cell for cell in cells if cell.spec.seed in seeds):
            model = cell.spec.model
            size = f"kernel {model.kernel_size}" if model.arch == "convmixer" else f"heads {getattr(model, 'heads', 0)}"
            label = cell.spec.dataset.label + (f", {model.arch} {model.width}, {size}" if several else "")
            number = value(cell.spec, name)
            number = None if number and fits(model, cell.spec.base, cell.spec.method) else number
            assert found.setdefault((cell.row, label), number) == number, "the same at every seed"
        assert {key: number for key, number in found.items() if number} == BESIDE.get(name, {}), name


def test_a_number_stands_beside_no_other_setting():
    """Each setting differs in one thing from one that has a number."""
    subset = {"train_size": 5000}
    assert value(run("impulse", IMPULSE)) == 91.62
    assert value(run("mimetic", MIMETIC)) == 91.16
    assert value(run(base="trunc_normal")) == 88.63
    for same in ({"dataset": {"train_size": 50_000}}, {"gpsa_layers": None}):
        assert value(run(base="trunc_normal", **same)) == 88.63
    for other in (
        run(base="trunc_normal", std=0.06),
        run(base="trunc_normal", epochs=100),
        run(base="trunc_normal", dataset=subset),
        run(base="trunc_normal", dataset={"val_size": 5000}),
        run(base="trunc_normal", dataset={"val_size": 5000, "evaluate_on": "val"}),
        run(base="trunc_normal", dataset={**subset, "train_draw": "seed"}),
        run(base="trunc_normal", dataset={"name": "digits"}),
        run(base="trunc_normal", depth=6),
        run(base="trunc_normal", heads=8),
        run(base="trunc_normal", patch_size=4),
        run(base="trunc_normal", position="learned"),
        run(base="trunc_normal", pool="token"),
        run(base="trunc_normal", drop_path_rate=0.1),
        run("impulse", IMPULSE, base="trunc_normal"),
        run("impulse", IMPULSE | {"kernel_size": 7}),
        run("impulse", IMPULSE | {"offsets": "fixed"}),
        run("impulse", IMPULSE | {"per_layer": True}),
        run("impulse", IMPULSE | {"control": "shuffled_rows"}),
        run("impulse", IMPULSE | {"pseudo_input": "normal"}),
        run("impulse", IMPULSE | {"solver": {**IMPULSE["solver"], "steps": 0}}),
        run("impulse", IMPULSE | {"solver": {"name": "svd"}}),
        run("mimetic", MIMETIC | {"noise": "normal", "vproj_order": "product"}),
        run("mimetic", MIMETIC | {"noise": "normal"}),
        run("mimetic", MIMETIC | {"parts": "qk"}),
        run("another", MIMETIC),
    ):
        assert value(other) is None, other


def test_a_setting_that_two_tables_have_takes_the_number_of_the_one_that_names_the_study():
    """Table 6 has 90.75 for what Table 2 says is 91.62."""
    spec = run("impulse", IMPULSE)
    assert [value(spec, study) for study in ("table2", "table6", "mine")] == [91.62, 90.75, 91.62]


def test_a_fraction_may_be_rounded_in_every_class():
    deit = {
        **{"base": "trunc_normal", "image_size": 224, "patch_size": 16, "width": 384, "heads": 6, "epochs": 6000},
        **{"position": "learned", "pool": "token", "qkv_bias": False, "drop_path_rate": 0.1},
    }
    for train_size, number in ((64_058, 34.8), (63_600, 34.8), (62_000, None), (66_000, None), (5_000, None)):
        assert value(run(dataset={"name": "imagenet", "train_size": train_size}, **deit)) == number
    assert all(images == registry.get(name).images for name, images in IMAGES.items()), "whole splits"
    whole = deit | {"epochs": 300}
    assert value(run(dataset={"name": "imagenet", "train_size": 1_281_167}, **whole), "convit-models") == 79.8
    assert value(run(dataset={"name": "imagenet", "train_size": 1_281_166}, **whole), "convit-models") is None


PRINTED_DIFFERENCES = {
    "Kaiming Uniform": (-2.27, -3.00, 1.31, 0.69),
    "Mimetic": (2.53, 3.90, 4.33, 0.92),
    "Imp.-3": (2.99, 2.31, 4.01, 0.82),
    "Imp.-5": (2.04, 3.96, 4.03, 0.98),
}
"""The paper prints the differences to Trunc Normal beside its numbers: they were copied apart from the values."""


def test_values_agree_with_the_differences_the_paper_prints():
    table = publication("2404.01139").tables["Table 2"]
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    for row, printed in PRINTED_DIFFERENCES.items():
        for column, difference in zip(table.columns, printed, strict=True):
            assert round(cells[row, column].value - cells["Trunc Normal", column].value, 2) == difference
    assert {(cell.n, cell.spread, cell.provenance) for cell in table.cells} == {(1, None, "A")}


def test_no_published_number_stands_beside_a_part_of_the_dataset(tmp_path):
    """ImageNet is read as it is there: spec and run_id say nothing of images that are missing."""
    run = spec("Imp.-3", dataset="imagenet", paper=True)
    for images, number in (((1_281_167, 50_000), 74.24), ((1_281_166, 50_000), None), ((1_281_167, 49_990), None)):
        record = finished(run, (70.0,), study="t", row="r", images=images)
        table = build(load([write(tmp_path / str(images), record)]))
        beside = table.numbers.set_index("row")["published"]["r"]
        assert beside == number or (number is None and beside != beside)
        notes = [note.rpartition(": ")[2] for note in table.notes if "Not the whole" in note]
        assert notes == ([] if number else [f"{images[0]:,} and {images[1]:,} of imagenet."])


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('"row": "Kaiming Uniform"', '"row": "Kaiming"', "not among the rows and columns"),
        ('"cells"', '"sells"', "is not a field here"),
        ("}", "", "Invalid JSON"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, before: str, after: str, says: str) -> None:
    text = (FOLDER / "2404.01139.json").read_text()
    assert before in text
    (tmp_path / "2404.01139.json").write_text(text.replace(before, after, 1))
    with pytest.raises(VitinitError, match=says) as error:
        publication("2404.01139", tmp_path)
    assert len(str(error.value).splitlines()) == 1
