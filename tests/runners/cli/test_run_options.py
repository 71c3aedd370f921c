"""`vitinit run`: what its options come to in records and beside them, and where it carries runs out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark.datasets import registry
from benchmark.grids import grid
from benchmark.records.maps import read_maps
from benchmark.records.store import Store
from runners.basics.environment import set_flags
from runners.basics.setting import Execution, Setting
from runners.loaders import choice
from runners.one_run.outcome import failure
from runners.training.checkpoint import Checkpoints
from tests.benchmark.small_archives import SMALL, packed_up, put, small
from tests.runners.cli.test_cli import changed, write

MINE = ("--only", "row=Kaiming*", "--executor", "inline")


@pytest.fixture(autouse=True)
def _flags_as_before(undisturbed):
    yield
    set_flags(Execution("cpu", 1, "inline"))


@pytest.fixture
def saved(monkeypatch) -> list[int]:
    """The steps at which checkpoints were saved."""
    save, steps = Checkpoints.save, []

    def noted(self, state, step: int) -> None:
        save(self, state, step)
        steps.append(step)

    monkeypatch.setattr(Checkpoints, "save", noted)
    return steps


def test_options_of_a_run_come_to_its_record(tmp_path, vitinit, monkeypatch, saved):
    grid = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=3))
    monkeypatch.setattr(choice, "main_memory", lambda: 1)  # the loader `auto` would look for FFCV
    saving = ("--checkpoint-minutes", "0", "--deterministic", "--loader", "resident", "--micro-batch", "16")
    measuring = ("--no-probes", "--keep-maps", "--maps-at", "1")
    code, out, err = vitinit("run", grid, *MINE, *saving, *measuring)
    assert code == 0, out + err
    (record,) = Store(tmp_path / "results/local").read("tiny").done.values()
    told = {"deterministic": True, "loader": "resident", "micro_batch": 16, "executor": "inline", "compiled": False}
    assert told.items() <= record.execution.items()
    assert record.probes == []
    maps = read_maps(tmp_path / "results/local", record)
    assert maps.epochs == (0, 1, 3)
    assert maps.weights == record.weights
    assert saved


def test_without_options_a_run_is_probed_and_keeps_nothing_else(tmp_path, vitinit, saved):
    code, out, err = vitinit("run", write(tmp_path / "tiny.yaml", changed()), *MINE)
    assert code == 0, out + err
    (record,) = Store(tmp_path / "results/local").read("tiny").done.values()
    assert [probe.epoch for probe in record.probes] == [0, 1, 2]
    assert (record.execution["deterministic"], record.execution["micro_batch"]) == (False, None)
    assert not (tmp_path / "results/local/tiny/maps").exists()
    assert saved == []


def serve(name: str, folder: Path, address: str, monkeypatch) -> None:
    """A dataset of archives in small, whose archives a server has, or not."""
    archives = {file: packed_up(file, files) for file, files in SMALL[name][0]().items()}
    dataset = small(name, archives, address)
    monkeypatch.setitem(registry._found(), name, registry._Found(dataset, "a test"))
    put(folder, archives)


def test_missing_datasets_are_downloaded_and_those_that_cannot_be_are_skipped(tmp_path, vitinit, server, monkeypatch):
    serve("eurosat", tmp_path / "served", server, monkeypatch)
    serve("stl10", tmp_path / "elsewhere", server, monkeypatch)
    content = changed(blocks__0__datasets=["eurosat", "stl10"], blocks__0__recipe__batch_size=4)
    grid = write(tmp_path / "tiny.yaml", content)
    code, out, err = vitinit("run", grid, *MINE, "--no-download")
    assert (code, "nothing to do: all 2 skipped" in out, (tmp_path / "no-data").exists()) == (0, True, False), err
    code, out, err = vitinit("run", grid, *MINE)
    assert code == 0, out + err
    assert out.count("downloading ") == 2
    assert out.count("cannot download stl10 (") == 1
    assert "cannot download eurosat" not in out
    contents = Store(tmp_path / "results/local").read("tiny")
    assert [(record.spec.dataset.name, record.dataset.train) for record in contents.done.values()] == [("eurosat", 16)]
    (skipped,) = contents.skipped.values()
    assert skipped.spec.dataset.name == "stl10"
    assert "vitinit data get stl10" in skipped.reason


def test_a_forced_run_comes_before_the_limit_and_its_weights_are_put_aside_too(tmp_path, vitinit):
    grid, results = write(tmp_path / "tiny.yaml", changed(blocks__0__seeds=[0, 1])), tmp_path / "results/local"
    assert vitinit("run", grid, *MINE, "--seeds", "1", "--keep-weights")[0] == 0
    (first,) = Store(results).read("tiny").done.values()
    weights = results / f"tiny/weights/{first.run_id}.pt"
    kept = weights.read_bytes()
    code, out, err = vitinit("run", grid, *MINE, "--limit", "1", "--force", first.run_id)
    assert code == 0, out + err
    assert Store(results).read("tiny").done.keys() == {first.run_id}
    (record,) = (results / "tiny").glob("*.superseded-*")
    assert first.written in record.read_text()
    (aside,) = weights.parent.iterdir()
    assert aside.name.startswith(f"{weights.name}.superseded-")
    assert aside.read_bytes() == kept


def test_what_is_refused_leaves_the_record_of_a_forced_run_in_its_place(tmp_path, vitinit):
    model = {"preset": "convmixer_micro", "image_size": 8, "patch_size": 2, "width": 16, "depth": 1}
    content = changed(rows={"Kaiming": {"base": "kaiming_uniform"}}, blocks__0__model=model, blocks__0__seeds=[0, 1])
    grid = write(tmp_path / "tiny.yaml", content)
    assert vitinit("run", grid, "--executor", "inline")[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "results/local/tiny").glob("*.json")}
    one, two = (path.stem for path in before)
    (tmp_path / "two.yaml").write_text("gpus: 2\n")
    on_two_gpus = ("--executor", "slurm", "--profile", str(tmp_path / "two.yaml"))
    for more, message in (
        (("--executor", "inline", "--micro-batch", "8"), "cannot be trained with --micro-batch 8"),
        (("--executor", "local", "--micro-batch", "8"), "cannot be trained with --micro-batch 8"),
        (("--executor", "inline", "--limit", "1", "--force", two), "--limit 1: --force names 2 runs"),
        ((*on_two_gpus, "--workers", "2"), "carry out one run at a time"),
    ):
        code, _, err = vitinit("run", grid, *more, "--force", one)
        assert (code, message in err) == (2, True), (more, err)
        assert {path: path.read_bytes() for path in (tmp_path / "results/local/tiny").glob("*.json*")} == before


def test_a_failure_behind_a_later_skip_is_tried_again(tmp_path, vitinit, monkeypatch):
    """The data was named, then it was not, then it is again."""
    serve("eurosat", tmp_path / "mine", "http://nowhere", monkeypatch)
    assert vitinit("data", "get", "eurosat", "--data-dir", "mine")[0] == 0
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__datasets=["eurosat"], blocks__0__recipe__batch_size=4))
    store, run = Store("results/local"), ("run", path, *MINE, "--no-download", "--no-probes")
    (cell,) = (cell for cell in grid.load(path).cells if cell.row.startswith("Kaiming"))
    setting = Setting(store.root, "tiny", tmp_path, Execution("cpu", 1, "inline"), {})
    earlier = {"written": "2026-01-01T00:00:00+00:00"}
    store.write(failure(cell, setting, "RuntimeError", "once").model_copy(update=earlier))
    assert vitinit(*run)[0] == 0
    assert store.read("tiny").skipped.keys() == {cell.run_id}
    assert "failed" in vitinit("plan", path, "--only", "row=Kaiming*", "--data-dir", "mine")[1]
    code, out, err = vitinit(*run, "--data-dir", "mine", "--retry-failed")
    assert (code, "1 run finished" in out) == (0, True), out + err
    assert store.read("tiny").done.keys() == {cell.run_id}
