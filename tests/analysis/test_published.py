"""The published numbers: that all are there, beside which runs of ours they stand, and what is wrong in a file."""

from __future__ import annotations

import json
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

BESIDE = json.loads(Path(__file__).with_name("published_beside.json").read_text(encoding="utf-8"))
"""Copied by hand from the papers' tables (grid: row and column to number); every other cell of every grid is empty."""


@pytest.mark.long
def test_what_stands_beside_the_runs_of_a_grid(monkeypatch):
    """Only a cell that has a number is asked whether its method fits the model: asking takes the longest."""
    fits = fitting.misfit
    monkeypatch.setattr(fitting, "misfit", lambda *_: "")
    for name in grid.names():
        several = name in ("table4", "table6")
        found: dict[str, float | None] = {}
        cells = grid.load(name).cells
        seeds = sorted({cell.spec.seed for cell in cells})[:2]
        for cell in (cell for cell in cells if cell.spec.seed in seeds):
            model = cell.spec.model
            size = f"kernel {model.kernel_size}" if model.arch == "convmixer" else f"heads {getattr(model, 'heads', 0)}"
            label = cell.spec.dataset.label + (f", {model.arch} {model.width}, {size}" if several else "")
            number = value(cell.spec, name)
            number = None if number and fits(model, cell.spec.base, cell.spec.method) else number
            assert found.setdefault(f"{cell.row} | {label}", number) == number, "the same at every seed"
        assert {key: number for key, number in found.items() if number} == BESIDE.get(name, {}), name


def test_a_number_stands_beside_no_other_setting():
    """Each setting differs in one thing from one that has a number."""
    assert value(run("impulse", IMPULSE)) == 91.62
    assert value(run("mimetic", MIMETIC)) == 91.16
    for same in ({}, {"dataset": {"train_size": 50_000}}, {"gpsa_layers": None}):
        assert value(run(base="trunc_normal", **same)) == 88.63
    others: list[dict[str, Any]] = [
        *({"dataset": fields} for fields in ({"train_size": 5000}, {"val_size": 5000}, {"name": "digits"})),
        *(
            {name: number}
            for name, number in {"std": 0.06, "epochs": 100, "depth": 6, "heads": 8, "patch_size": 4}.items()
        ),
        *({"position": "learned"}, {"pool": "token"}, {"drop_path_rate": 0.1}),
        *(
            {"method": "impulse", "params": IMPULSE},
            {"method": "another", "base": "kaiming_uniform", "params": MIMETIC},
        ),
        *({"method": "mimetic", "base": "kaiming_uniform", "params": MIMETIC | more} for more in MIMETIC_OTHERS),
        *({"method": "impulse", "base": "kaiming_uniform", "params": IMPULSE | more} for more in IMPULSE_OTHERS),
    ]
    for other in others:
        assert value(run(**{"base": "trunc_normal", **other})) is None, other


MIMETIC_OTHERS = ({"noise": "normal"}, {"parts": "qk"})
IMPULSE_OTHERS = ({"kernel_size": 7}, {"offsets": "fixed"}, {"control": "shuffled_rows"}, {"solver": {"name": "svd"}})


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
