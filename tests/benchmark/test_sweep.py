"""Sweeps and `--set` of a grid: the combinations by hand, whose fields win, and what is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.settings import named_fields
from vitinit.benchmark.spec import InitializerSpec
from vitinit.runners.launching.choose import fixed_values, matches

GRID = """
title: swept
rows:
  Base: {{base: trunc_normal, recipe: {{lr: 0.5}}}}
  Mimetic: {{base: trunc_normal, method: mimetic}}
blocks:
  - datasets: [{{name: digits, train_size: 100}}]
    model: {{preset: vit_micro, image_size: 8, patch_size: 4, depth: 1}}
    recipe: {{name: small, epochs: 1, batch_size: 8}}
    seeds: [0, 1]
    sweep: {sweep}
"""


def cells(folder: Path, sweep: str, **fixed: object) -> list[Cell]:
    file = folder / "swept.yaml"
    file.write_text(GRID.format(sweep=sweep))
    return grid.load(str(file), fixed={name.replace("__", "."): value for name, value in fixed.items()}).cells


def taken(found: list[Cell]) -> set[tuple]:
    return {(c.row, c.spec.recipe.lr, c.spec.model.width, c.spec.dataset.train_size, c.spec.seed) for c in found}


def test_fields_are_crossed_and_win_over_those_of_rows(tmp_path):
    found = cells(tmp_path, "{lr: [3e-4, 1e-3], model.width: [48, 96], train_size: [50, 100]}")
    assert taken(found) == set(product(("Base", "Mimetic"), (3e-4, 1e-3), (48, 96), (50, 100), (0, 1)))
    assert len({cell.run_id for cell in found}) == len(found) == 32
    places = {cell.place for cell in found}
    assert len(places) == 16, "every combination has a cell of its own in tables"


def test_a_field_that_is_set_takes_the_place_of_a_sweep_of_it(tmp_path):
    found = cells(tmp_path, "{lr: [0.1, 0.2], width: [48, 96]}", lr=0.3)
    assert {(c.spec.recipe.lr, c.spec.model.width) for c in found} == {(0.3, 48), (0.3, 96)}


def test_a_swept_grid_has_the_runs_of_one_that_is_written_out(tmp_path):
    swept = cells(tmp_path, "{width: [48, 96]}")
    by_hand = [run for width in (48, 96) for run in cells(tmp_path, "{}", model__width=width)]
    assert {c.run_id for c in swept} == {c.run_id for c in by_hand}


def test_zipped_fields_go_together_and_rules_leave_combinations_out(tmp_path):
    found = cells(tmp_path, "{zip: {width: [48, 96], heads: [3, 6]}, lr: [0.1, 0.2], without: {lr: 0.2, width: [96]}}")
    pairs = {(c.spec.model.width, c.spec.model.heads, c.spec.recipe.lr) for c in found}
    assert pairs == {(48, 3, 0.1), (48, 3, 0.2), (96, 6, 0.1)}


def test_a_parameter_of_a_method_is_swept_in_the_rows_that_have_it(tmp_path):
    found = cells(tmp_path, "{parts: [qk, vo]}")
    rows = {c.row: c.spec.method and c.spec.method.params["parts"] for c in found}
    assert rows == {"Base": None, "Mimetic, parts qk": "qk", "Mimetic, parts vo": "vo"}
    assert len({c.column for c in found}) == 1, "in a table they stand beside their base"
    file = tmp_path / "swept.yaml"
    file.write_text(file.read_text() + "contrasts: [[Mimetic, Base]]\n")
    assert grid.load(str(file)).contrasts == [("Mimetic, parts qk", "Base"), ("Mimetic, parts vo", "Base")]
    assert {c.row for c in cells(tmp_path, "{}", method__parts="qk")} == {"Base", "Mimetic"}


def test_parameters_inside_a_field_are_swept_and_set_by_their_path(tmp_path):
    found = cells(tmp_path, "{optimizer.momentum: [0.5, 0.6], recipe.schedule.cooldown: [0.3]}",
                  optimizer="sgd", schedule="wsd", epochs=10)  # fmt: skip
    assert {c.spec.recipe.optimizer.params["momentum"] for c in found} == {0.5, 0.6}
    assert {c.spec.recipe.schedule.cooldown for c in found} == {0.3}
    written = cells(tmp_path, "{optimizer: [{name: sgd, momentum: 0.5}, {name: sgd, momentum: 0.6}]}",
                    schedule={"name": "wsd", "cooldown": 0.3}, epochs=10)  # fmt: skip
    assert [c.run_id for c in found] == [c.run_id for c in written]
    for key in ("optimizer.momentum", "recipe.optimizer.momentum", "optimizer.params.momentum"):
        assert sum(matches(c, f"{key}=0.5") for c in found) == 4


def test_set_is_yaml_and_only_takes_every_field_by_its_name_in_tables(tmp_path):
    assert fixed_values(["recipe.lr=1e-3", "width=96", "mean=a"]) == {"recipe.lr": 0.001, "width": 96, "mean": "a"}
    found = cells(tmp_path, "{lr: [3e-4, 1e-3], width: [48, 96]}")
    assert {c.spec.recipe.lr for c in found if matches(c, "lr=3e-4")} == {3e-4}
    assert {c.spec.model.width for c in found if matches(c, "model.width=96")} == {96}
    assert named_fields(found[0].spec)["lr"] == "0.0003"
    assert all(matches(c, "train_size=100") and matches(c, "dataset.train_size=100") for c in found)
    swept = cells(tmp_path, "{parts: [qk, vo]}")
    for key in ("parts", "method.parts", "params.parts"):
        assert {c.row for c in swept if matches(c, f"{key}=qk")} == {"Mimetic, parts qk"}
    flipped = cells(tmp_path, "{augment: [[trivial_augment], [color_jitter, trivial_augment]]}")
    assert sum(matches(c, "augment=color_jitter*, trivial_augment*") for c in flipped) == len(flipped) / 2
    of_both = found[0].spec.model_copy(update={"method": InitializerSpec(name="mine", params={"std": 0.5})})
    names = named_fields(of_both)
    assert (names["base.std"], names["method.std"], names.get("std")) == ("0.02", "0.5", None), "std is of two"


def test_a_placebo_follows_the_parameter_of_its_method(tmp_path):
    """Else it would stay at the default, and a contrast with it be printed all the same."""
    file = tmp_path / "swept.yaml"
    placebo = "  Placebo: {base: trunc_normal, method: {name: placebo, of: mimetic}}\nblocks:"
    file.write_text(GRID.format(sweep="{alpha_qk: [0.3, 0.9]}").replace("blocks:", placebo))
    found = {c.row: c.spec.method.params for c in grid.load(str(file)).cells if c.spec.method}
    assert {row: params["of"]["alpha_qk"] for row, params in found.items() if row.startswith("Placebo")} == {
        "Placebo, alpha_qk 0.3": 0.3,
        "Placebo, alpha_qk 0.9": 0.9,
    }
