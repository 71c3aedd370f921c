"""Grids: one series a row and dataset, and a cache that never changes what a grid means."""

from __future__ import annotations

import importlib.metadata
import itertools
import textwrap
from pathlib import Path

import pytest
import yaml

from analysis.published import lookup
from benchmark.grids import cache as grid_cache
from benchmark.grids import grid, resolve
from benchmark.spec import RunSpec
from initializers.errors import VitinitError
from tests.processes import ROOT, fresh

GRID = {
    "title": "two rows",
    "rows": {
        "Trunc normal": {"base": "trunc_normal"},
        "Imp.-3": {"base": "kaiming_uniform", "method": {"name": "impulse", "kernel_size": 3}},
    },
    "blocks": [
        {
            "datasets": ["digits", {"name": "cifar10", "train_size": 500}],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 1},
            "recipe": {"name": "small", "epochs": 2},
            "seeds": [3, 0],
        }
    ],
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder of this test's own; its name is not that of the folder inside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vitinit" / "grids"


@pytest.fixture
def file(tmp_path) -> Path:
    return write(tmp_path / "two.yaml", GRID)


@pytest.fixture
def resolved(monkeypatch) -> list[int]:
    """Grows by one whenever a grid is resolved rather than taken from the cache."""
    calls: list[int] = []

    def counted(*arguments):
        calls.append(1)
        return original(*arguments)

    original = resolve.resolve
    monkeypatch.setattr(resolve, "resolve", counted)
    return calls


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


@pytest.mark.parametrize("name", ["small", "smoke", "table2"])
def test_a_grid_from_the_cache_is_the_grid(name, resolved, cache):
    first = grid.load(name)
    assert len(list(cache.iterdir())) == 1
    second = grid.load(name)
    assert first == second
    assert [cell.run_id for cell in first.cells] == [cell.spec.run_id for cell in second.cells]
    assert len(resolved) == 1


def test_files_of_one_content_share_it_under_their_own_names(file, tmp_path, resolved):
    grid.load(str(file))
    (tmp_path / "copy.yaml").write_bytes(file.read_bytes())
    assert grid.load(str(tmp_path / "copy.yaml")).name == "copy"
    assert len(resolved) == 1


def test_whatever_a_grid_depends_on_makes_another_key(file, monkeypatch, resolved, tmp_path):
    """One change after the other; none of them may find what was kept before."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "method.py").write_text("gain = 0.5\n")
    monkeypatch.setattr(grid_cache, "CODE", (*grid_cache.CODE, code))
    real = importlib.metadata.version

    changes = [
        lambda: None,
        lambda: file.write_text(file.read_text() + "# a comment\n"),
        lambda: (code / "method.py").write_text("gain = 0.6\n"),
        lambda: (code / "recipe.yaml").write_text("lr: 1\n"),
        lambda: (code / "recipe.yaml").rename(code / "other.yaml"),
        lambda: monkeypatch.setattr(grid_cache, "version", lambda name: real(name) + ".1" * (name == "timm")),
        lambda: monkeypatch.setattr(grid_cache, "SCHEMA_VERSION", 2),
        lambda: monkeypatch.setattr(grid_cache.platform, "python_version", lambda: "3.99.0"),
    ]
    for number, change in enumerate(changes, 1):
        change()
        for _ in range(2):
            grid.load(str(file))
        assert len(resolved) == number
    assert [cell.spec.seed for cell in grid.load(str(file), [7, 8]).cells] == [7, 8] * 4
    assert [cell.spec.seed for cell in grid.load(str(file), [7]).cells] == [7] * 4
    assert len(resolved) == number + 2


def test_a_damaged_file_is_resolved_anew(file, cache, resolved):
    expected = grid.load(str(file))
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    damages = [b"", whole[:-20], whole[65:], b"\xff" + whole, b"0" * 64 + whole[64:], b"[" * 100_000]
    digit = whole.index(b'"lr":') + 8
    damages.append(whole[:digit] + b"7" + whole[digit + 1 :])  # valid JSON and a valid spec, but another one
    for number, damage in enumerate(damages, 2):
        assert damage != whole
        path.write_bytes(damage)
        assert grid.load(str(file)) == expected
        assert len(resolved) == number
        assert path.read_bytes() == whole, "mended"


@pytest.mark.parametrize("place", ["a file", "a folder in the way", "a relative path"])
def test_a_cache_that_cannot_be_is_no_error(place, file, tmp_path, monkeypatch, resolved, cache):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").write_text("no folder")
    if place == "a file":
        monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    elif place == "a relative path":
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    else:
        key = grid_cache.key(file.read_bytes(), None)
        (cache / f"{key}.json").mkdir(parents=True)
    assert grid.load(str(file)) == grid.load(str(file))
    assert len(resolved) == 2
    assert not (tmp_path / "relative").exists()
    assert not list(tmp_path.rglob("*.tmp"))


def test_errors_are_not_kept(tmp_path, cache):
    content = {**GRID, "rows": {**GRID["rows"], "The same": {"base": "trunc_normal"}}}
    path = write(tmp_path / "twice.yaml", content)
    for _ in range(2):
        with pytest.raises(VitinitError, match="row 'The same': is the same run as row 'Trunc normal'"):
            grid.load(str(path))
    assert not cache.exists()


def test_seeds_that_no_stream_takes_are_refused_and_so_is_one_that_is_there_twice(file, cache):
    for seeds in ([2**63], [0, 2**63]):
        with pytest.raises(VitinitError, match="row 'Trunc normal': seed"):
            grid.load(str(file), seeds)
    with pytest.raises(VitinitError, match="seed 5 is there twice"):
        grid.load(str(file), [5, 4, 5])
    assert not cache.exists()


@pytest.mark.parametrize("name", ["convit-models", "convit-efficiency", "convit-ablation"])
def test_every_run_of_convits_tables_stands_beside_its_published_number(name):
    cells = grid.load(name).cells
    published = [lookup(cell.spec, name) for cell in cells]
    assert all(published)
    assert len({(number.cell.row, number.cell.column) for number in published}) == len(cells)
    assert not any(cell.misfit for cell in cells)


TABLE4 = """
title: "Table 4 of arXiv 2404.01139, without its recipe, which is not known"
rows:
  Trained: {base: kaiming_uniform}
  Random: {base: kaiming_uniform, method: {name: conv_filters, filter: random}}
  Impulse: {base: kaiming_uniform, method: {name: conv_filters, filter: impulse}}
  Impulse, trained: {base: kaiming_uniform, method: {name: conv_filters, filter: impulse, frozen: false}}
  Box: {base: kaiming_uniform, method: {name: conv_filters, filter: box, entries: 9}}
  Gaussian: {base: kaiming_uniform, method: {name: conv_filters, filter: gaussian, variance: 1.0}}
  Mimetic: {base: kaiming_uniform, method: mimetic}
blocks:
  - &block
    datasets: [cifar10]
    model: {preset: convmixer_256_8, image_size: 32, patch_size: 2}
    recipe: small
    seeds: [0]
  - {<<: *block, model: {preset: convmixer_512_6, image_size: 32, patch_size: 2}}
  - {<<: *block, model: {preset: convmixer_512_6, image_size: 32, patch_size: 2, kernel_size: 5}}
  - {<<: *block, model: {preset: convmixer_512_6, image_size: 32, patch_size: 2, kernel_size: 8}}
  - {<<: *block, model: {preset: vit_micro, image_size: 32, patch_size: 2}}
"""


def test_rows_are_skipped_in_blocks_whose_model_they_do_not_fit(tmp_path):
    path = write(tmp_path / "table4.yaml", yaml.safe_load(TABLE4))
    for _ in range(2):  # the second time from the cache
        cells = grid.load(str(path)).cells
        assert len({cell.run_id for cell in cells}) == 7 * 5
        for cell in cells:
            mixer = cell.spec.model.arch == "convmixer"
            name = cell.spec.method.name if cell.spec.method else None
            if name == ("mimetic" if mixer else "conv_filters"):
                assert f"method {name!r}" in cell.misfit
                assert "\n" not in cell.misfit
            else:
                assert cell.misfit == ""


def test_a_row_that_fits_no_block_is_refused(tmp_path):
    content = yaml.safe_load(TABLE4)
    content["blocks"].pop()
    with pytest.raises(VitinitError, match="row 'Mimetic': method 'mimetic' sets .* ConvMixer has none of them"):
        grid.load(str(write(tmp_path / "table4.yaml", content)))


PLUGIN = """
from typing import ClassVar
from initializers.registry import Initializer, register

class Theirs(Initializer):
    name: ClassVar[str] = "theirs"
    touches: ClassVar[tuple[str, ...]] = ("*",)
    deterministic: ClassVar[bool] = True
    gain: float = {gain}

    def apply(self, model, generator, progress):
        pass
"""


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "placebo"])
@pytest.mark.parametrize("name", ["their_package:Theirs", "theirs"])
def test_a_grid_with_a_plug_in_is_resolved_each_time(name, wrapped, tmp_path, cache):
    """By dotted path and by entry point, also inside a placebo: changed code of theirs gives changed runs."""
    method = {"name": "placebo", "of": name} if wrapped else name
    content = {**GRID, "rows": {"Theirs": {"base": "trunc_normal", "method": method}}}
    path = write(tmp_path / "theirs.yaml", content)
    info = tmp_path / "their_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vitinit.initializers]\ntheirs = their_package:Theirs\n")
    script = f"""
import sys
from benchmark.grids import grid
sys.dont_write_bytecode = True
print(grid.load({str(path)!r}).cells[0].spec.method.params)
"""
    for gain in (0.25, 0.75):
        (tmp_path / "their_package.py").write_text(textwrap.dedent(PLUGIN.format(gain=gain)))
        done = fresh("-c", script, cwd=tmp_path, path=(tmp_path, ROOT))
        resolved = {"of": {"name": name, "gain": gain}, "keep": "spectrum"} if wrapped else {"gain": gain}
        assert done.stdout == f"{resolved}\n", done.stderr
    assert not cache.exists()
