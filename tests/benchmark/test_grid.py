"""Grids: rows, sweeps and `--set` become runs, counted by hand; what does not fit is skipped."""

from itertools import product

import pytest

from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.grids import grid
from vitinit.benchmark.settings import named_fields
from vitinit.benchmark.spec import InitializerSpec
from vitinit.runners.launching.watch import fixed_values, matches

GRID = """
title: swept
rows:
  Base: {base: trunc_normal, recipe: {lr: 0.5}}
  Mimetic: {base: trunc_normal, method: mimetic}
blocks:
  - datasets: [{name: digits, train_size: 100}]
    model: {preset: vit_micro, image_size: 8, patch_size: 4, depth: 1}
    recipe: {name: small, epochs: 1, batch_size: 8}
    seeds: 0-1
    sweep: {}
"""


def load(folder, *changes, **fixed):
    text = GRID
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "swept.yaml").write_text(text)
    return grid.load(str(folder / "swept.yaml"), fixed={name.replace("__", "."): one for name, one in fixed.items()})


def cells(folder, sweep="{}", **fixed):
    return load(folder, ("sweep: {}", f"sweep: {sweep}"), **fixed).cells


def test_runs_are_in_table_order_and_fully_resolved(tmp_path):
    found = load(tmp_path, ("100}]", "100}, cifar10]"), ("seeds: 0-1", "seeds: [3, 0]")).cells
    assert [(cell.row, cell.spec.dataset.label, cell.spec.seed) for cell in found] == [
        (row, dataset, seed) for dataset, row, seed in product(("digits[100]", "cifar10"), ("Base", "Mimetic"), (3, 0))
    ]
    assert all(cell.spec.method is None or "noise" in cell.spec.method.params for cell in found), "with its defaults"


def test_fields_are_crossed_and_win_over_those_of_rows(tmp_path):
    found = cells(tmp_path, "{recipe.lr: [3e-4, 1e-3], model.width: [48, 96], dataset.train_size: [50, 100]}")
    settings = {(c.row, c.spec.recipe.lr, c.spec.model.width, c.spec.dataset.train_size, c.spec.seed) for c in found}
    assert settings == set(product(("Base", "Mimetic"), (3e-4, 1e-3), (48, 96), (50, 100), (0, 1)))
    assert len({cell.run_id for cell in found}) == len(found) == 32
    assert len({cell.place for cell in found}) == 16, "every combination has a cell of its own in tables"
    assert {c.spec.recipe.lr for c in found if matches(c, "lr=3e-4")} == {3e-4}
    assert all(matches(c, "train_size=*0") and matches(c, "recipe.batch_size=8") for c in found)


def test_a_field_that_is_set_takes_the_place_of_a_sweep_and_is_the_run_that_is_written_out(tmp_path):
    fixed = fixed_values(["recipe.lr=1e-3", "recipe.schedule={name: wsd, cooldown: 0.3}"])
    assert fixed == {"recipe.lr": 0.001, "recipe.schedule": {"name": "wsd", "cooldown": 0.3}}
    found = cells(tmp_path, "{recipe.lr: [0.1, 0.2], model.width: [48, 96]}", recipe__epochs=10, **fixed)
    written = [
        ("lr: 0.5", "lr: 0.001"),
        ("epochs: 1", "epochs: 10, lr: 0.001, schedule: {name: wsd, cooldown: 0.3}"),
    ]
    by_hand = [
        run for width in (48, 96) for run in load(tmp_path, *written, ("depth: 1", f"depth: 1, width: {width}")).cells
    ]
    assert {c.run_id for c in found} == {c.run_id for c in by_hand}


def test_names_of_fields_that_two_parts_have_stand_for_neither(tmp_path):
    swept = cells(tmp_path, "{recipe.augment: [[trivial_augment], [color_jitter, trivial_augment]]}")
    assert sum(matches(c, "augment=color_jitter*, trivial_augment*") for c in swept) == len(swept) / 2
    lion = cells(tmp_path, "{recipe.optimizer.momentum: [0.5, 0.6]}", recipe__optimizer="sgd")
    assert {key: sum(matches(c, f"{key}=0.5") for c in lion) for key in ("optimizer.momentum", "momentum")} == {
        "optimizer.momentum": 4,
        "momentum": 0,
    }
    assert {c.column for c in lion} == {"digits[100] (optimizer.momentum 0.5)", "digits[100] (optimizer.momentum 0.6)"}
    assert {c.column for c in swept} == {
        "digits[100] (augment trivial_augment bins 31)",
        "digits[100] (augment color_jitter brightness 0.3 contrast 0.3 saturation 0.3, trivial_augment bins 31)",
    }
    both = swept[0].spec.model_copy(update={"method": InitializerSpec(name="mine", params={"std": 0.5})})
    names = named_fields(both)
    assert (names["base.std"], names["method.std"], names.get("std")) == ("0.02", "0.5", None)


def test_merged_anchors_may_be_merged_again(tmp_path):
    rows = "Base: {base: trunc_normal, method: &b {<<: &a {name: impulse, kernel_size: 3}, kernel_size: 5}}\n"
    rows += "  More: {base: trunc_normal, method: {<<: *b, weight_norm: 2.0}}"
    found = load(tmp_path, ("Base: {base: trunc_normal, recipe: {lr: 0.5}}", rows), ("depth: 1", "depth: 2"))
    assert {c.spec.method.params["kernel_size"] for c in found.cells if c.row in ("Base", "More")} == {5}


@pytest.mark.parametrize("name", ["r²", "½", "①", "a b", "..", "a/b"])
def test_a_name_that_a_record_would_refuse_is_none_of_a_folder(name):
    """Two engines read the pattern, `re` and pydantic's own: a run would be trained and then not be recorded."""
    assert not is_folder_name(name)
    assert is_folder_name("größe-1.2_x")
