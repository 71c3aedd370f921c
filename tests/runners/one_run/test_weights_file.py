"""Runs that start from a checkpoint: planned by its content, refused before they begin, repeated where it has moved."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import torch

from tests.runners.cli.test_cli import changed, write
from vitinit.benchmark.grids import grid
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError

pytestmark = pytest.mark.usefixtures("undisturbed", "one_thread")

ROWS = {
    "Trunc normal": {"base": "trunc_normal"},
    "Selected": {"base": "trunc_normal", "method": "weight_selection"},
    "Placebo": {"base": "trunc_normal", "method": {"name": "placebo", "of": "weight_selection"}},
}


@pytest.fixture
def file(tmp_path, undisturbed) -> Path:
    return Path(write(tmp_path / "from.yaml", changed(rows=ROWS, blocks__0__recipe__epochs=1), sort_keys=False))


@pytest.fixture
def larger(tmp_path) -> Path:
    return checkpoint(tmp_path / "larger.pt")


def checkpoint(path: Path, seed: int = 0, **changes) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fields = {"image_size": 8, "patch_size": 2, "width": 96, "depth": 2, "heads": 8}
        model = build_model(ViT(**{**fields, **changes}), 100)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
    torch.save(model.state_dict(), path)
    return path


def run_ids(file: Path, weights: Path) -> list[str]:
    return [cell.run_id for cell in grid.load(str(file), weights=weights).cells]


@pytest.mark.long
def test_a_study_from_a_checkpoint_is_recorded_and_repeated(file, larger, tmp_path, vitinit):
    exit_code, printed, error = vitinit("run", file, "--weights", larger, "--executor", "inline")
    assert exit_code == 0, error
    assert "3 runs finished, 0 failed" in printed
    records = {record.row: record for record in Store("results/local").read("from").done.values()}
    sha256 = hashlib.sha256(larger.read_bytes()).hexdigest()
    selected = records["Selected"]
    assert selected.spec.method.params == {"weights": {"path": str(larger), "sha256": sha256}, "qkv": "fused"}
    assert records["Placebo"].spec.method.params["of"]["weights"]["sha256"] == sha256
    assert "blocks.0.mlp.fc1.weight" in selected.init.method_parameters
    assert not any("head" in name for name in selected.init.method_parameters)
    moved = larger.rename(tmp_path / "moved.pt")
    assert "3 done" in vitinit("plan", file, "--weights", moved)[1]
    for row in ("Selected", "Placebo"):
        run_id = records[row].run_id
        exit_code, _, error = vitinit("reproduce", run_id)
        assert (exit_code, "No such file" in error, error.count("\n")) == (2, True, 1)
        exit_code, printed, error = vitinit("reproduce", run_id, "--weights", moved)
        assert exit_code == 0, printed + error
        assert "bitwise equal" in printed
    exit_code, _, error = vitinit("reproduce", run_id, "--weights", checkpoint(tmp_path / "other.pt", seed=1))
    assert (exit_code, "was not started from this file, by its content" in error) == (2, True)


def test_other_content_is_another_run_and_the_same_elsewhere_is_not(file, larger, tmp_path):
    plain, *first = run_ids(file, larger)
    elsewhere = tmp_path / "a" / "b.pt"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(larger.read_bytes())
    assert run_ids(file, elsewhere) == [plain, *first]
    checkpoint(larger, seed=1)
    again, *second = run_ids(file, larger)
    assert again == plain
    assert not set(first) & set(second), "nothing that was kept of the first is taken for the second"
    checkpoint(larger, seed=1, depth=1)
    assert not set(second) & set(run_ids(file, larger))


def test_a_grid_may_name_the_file_itself(file, larger, tmp_path):
    rows = {"Selected": {"base": "trunc_normal", "method": {"name": "weight_selection", "weights": larger.name}}}
    write(file, changed(rows=rows))
    [cell] = grid.load(str(file)).cells
    assert cell.spec.method.params["weights"]["path"] == str(tmp_path / "larger.pt")
    with pytest.raises(VitinitError, match="no method of grid 'from' takes a checkpoint that it does not name"):
        grid.load(str(file), weights=larger)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (None, "row 'Selected': method 'weight_selection' needs a checkpoint .*, on the command line --weights FILE"),
        ({"width": 24}, "row 'Selected': method 'weight_selection' on ViT: .* must be no smaller than"),
        ({"image_size": 16}, "row 'Selected': .* positions of 64 tokens, and the model has 16"),
    ],
)
def test_what_does_not_fit_is_one_line_before_anything_runs(changes, says, file, tmp_path, vitinit):
    weights = ["--weights", checkpoint(tmp_path / "bad.pt", **changes)] if changes else []
    for command in ("plan", "run", "status"):
        exit_code, _, error = vitinit(command, file, *weights)
        assert (exit_code, error.count("\n")) == (2, 1)
        assert re.search(says, error)
    assert not Path("results").exists()


def test_a_damaged_or_missing_file_is_one_line(file, larger, tmp_path, vitinit):
    larger.write_bytes(larger.read_bytes()[:1000])
    for path, says in ((larger, "is damaged"), (tmp_path / "gone.pt", "No such file")):
        exit_code, _, error = vitinit("plan", file, "--weights", path)
        assert (exit_code, says in error, error.count("\n")) == (2, True, 1), error
