"""Grids: one series a row and dataset."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml
from two_rows import GRID

from vitinit.benchmark.grids import grid
from vitinit.benchmark.spec import RunSpec


@pytest.fixture
def file(tmp_path) -> Path:
    return write(tmp_path / "two.yaml", GRID)


def write(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def test_cells_are_in_table_order_and_fully_resolved(file):
    cells = grid.load(str(file)).cells
    assert [(cell.row, cell.spec.dataset.label, cell.spec.seed) for cell in cells] == [
        (row, dataset, seed)
        for dataset, row, seed in itertools.product(("digits", "cifar10[500]"), GRID["rows"], (3, 0))
    ]
    for cell in cells:
        assert cell.run_id == RunSpec.model_validate_json(cell.spec.model_dump_json()).run_id
        assert cell.spec.method is None or {"kernel_size", "offsets", "solver"} <= cell.spec.method.params.keys()
    assert len({cell.run_id for cell in cells}) == 8


def test_a_batch_may_be_as_large_as_the_dataset(file):
    assert {cell.spec.recipe.batch_size for cell in grid.load(str(file), fixed={"batch_size": 500}).cells} == {500}


def rows_and_models(*presets: str) -> dict:
    rows = {str(name): {"base": "kaiming_uniform", "method": name} for name in (None, "conv_filters", "mimetic")}
    models = [{"preset": name, "image_size": 32, "patch_size": 4} for name in presets]
    return {**GRID, "rows": rows, "blocks": [{**GRID["blocks"][0], "model": model} for model in models]}


def test_rows_are_skipped_in_blocks_whose_model_they_do_not_fit(tmp_path):
    path = write(tmp_path / "two.yaml", rows_and_models("vit_micro", "convmixer_micro"))
    cells = grid.load(str(path)).cells
    assert len({cell.run_id for cell in cells}) == 3 * 2 * 4
    for cell in cells:
        misfit = f"method {cell.row!r}" in cell.misfit
        assert misfit == ((cell.row, cell.spec.model.arch) in (("conv_filters", "vit"), ("mimetic", "convmixer")))
        assert misfit or cell.misfit == ""
