"""The published numbers: that all are there, beside which runs of ours they stand, and what is wrong in a file."""

import json
from pathlib import Path

import pytest
import yaml
from synthetic_records import done, spec, write

from vitinit.analysis.frame import load
from vitinit.analysis.published import IMAGES, lookup
from vitinit.analysis.tables.registry import build
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.grids import grid
from vitinit.benchmark.spec import RunSpec


def value(row="Trunc normal", study="", **parts):
    """The number beside a run in the setting of arXiv 2404.01139's Table 2, but for these fields of its parts."""
    run = spec(row, paper=True).model_dump(mode="json")
    for part, fields in parts.items():
        params = {"params": run[part]["params"] | fields["params"]} if "params" in fields else {}
        run[part] |= fields | params
    found = lookup(RunSpec.model_validate(run), study)
    return found.value if found else None


# --- which number stands beside which run of a grid ---

BESIDE = json.loads(Path(__file__).with_name("published_beside.json").read_text(encoding="utf-8"))
"""Copied by hand from the papers' tables (grid: row and column to number); every other cell of every grid is empty."""

SETTINGS = yaml.safe_load(Path(__file__).with_name("settings.yaml").read_text(encoding="utf-8"))


@pytest.mark.long
def test_what_stands_beside_the_runs_of_a_grid(monkeypatch):
    """Only a cell that has a number is asked whether its method fits the model: asking takes the longest."""
    fits = grid.misfit
    monkeypatch.setattr(grid, "misfit", lambda *_: "not asked")
    monkeypatch.setattr(grid, "_answers_folder", lambda: None)
    for name in grid.names():
        several = name in ("table4", "table6")
        beside = {}
        cells = grid.load(name).cells
        seeds = sorted({cell.spec.seed for cell in cells})[:2]
        for cell in (cell for cell in cells if cell.spec.seed in seeds):
            model = cell.spec.model
            size = f"kernel {model.kernel_size}" if model.arch == "convmixer" else f"heads {getattr(model, 'heads', 0)}"
            label = cell.spec.dataset.label + (f", {model.arch} {model.width}, {size}" if several else "")
            published = lookup(cell.spec, name)
            method = (cell.spec.method or cell.spec.base).model_dump_json()
            number = published.value if published and not fits(model, method) else None
            assert beside.setdefault(f"{cell.row} | {label}", number) == number, "the same at every seed"
        assert {key: number for key, number in beside.items() if number} == BESIDE.get(name, {}), name


def test_a_number_stands_beside_no_other_setting():
    """Each setting differs in one thing from one that has a number; a study takes that of the table that names it."""
    assert (value("Imp.-3"), value("Mimetic"), value("Imp.-3", "table6")) == (91.62, 91.16, 90.75)
    assert value() == value(dataset={"train_size": 50_000}) == value(model={"gpsa_layers": None}) == 88.63
    for row, part, fields in yaml.safe_load(Path(__file__).with_name("unpublished.yaml").read_bytes()):
        assert value(row, **{part: fields}) is None, (row, part, fields)


def test_points_over_another_row_are_no_accuracy():
    """arXiv 2505.19985's main table has them for Pets, its Figure 6 the accuracy in the same setting."""
    assert value("Imp.-3", **SETTINGS["pets"]) == 48.85


def test_a_fraction_may_be_rounded_in_every_class():
    def deit(train_size, epochs, study=""):
        dataset, recipe = {"name": "imagenet", "train_size": train_size}, {"epochs": epochs, "evaluate_every": epochs}
        return value(study=study, dataset=dataset, model=SETTINGS["deit"], recipe=recipe)

    sizes = (64_058, 63_600, 62_000, 66_000, 5_000)
    assert [deit(size, 6000) for size in sizes] == [34.8, 34.8, None, None, None]
    assert [deit(size, 300, "convit-models") for size in (1_281_167, 1_281_166)] == [79.8, None]
    assert all(images == registry.get(name).images for name, images in IMAGES.items()), "whole splits"


def test_no_published_number_stands_beside_a_part_of_the_dataset(tmp_path):
    """ImageNet is read as it is there: spec and run_id say nothing of images that are missing."""
    for images, number in (((1_281_167, 50_000), 74.24), ((1_281_166, 50_000), None), ((1_281_167, 49_990), None)):
        record = done("Imp.-3", (70.0,), dataset="imagenet", paper=True, images=images)
        table = build(load([write(tmp_path / str(images), record)]))
        assert table.frame["published"].dropna().tolist() == ([number] if number else [])
        notes = [note.rpartition(": ")[2] for note in table.notes if "Not the whole" in note]
        assert notes == ([] if number else [f"{images[0]:,} and {images[1]:,} of ImageNet."])
