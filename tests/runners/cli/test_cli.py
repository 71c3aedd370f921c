"""Whole studies as a user runs them."""

import json
import os
from pathlib import Path

import yaml

from analysis.figures import __main__ as figures
from analysis.tables import __main__ as tables
from benchmark.grids import grid
from benchmark.records.store import Store

TINY = {
    "title": "tiny",
    "rows": {
        "Kaiming uniform": {"base": "kaiming_uniform"},
        "Mimetic": {"base": "kaiming_uniform", "method": "mimetic"},
    },
    "blocks": [
        {
            "datasets": [{"name": "digits", "train_size": 100}],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 2, "depth": 1},
            "recipe": {"name": "small", "epochs": 2},
            "seeds": [0],
        }
    ],
}


def changed(**paths):
    """TINY with values replaced; a__b__0__c names content["a"]["b"][0]["c"]."""
    grid = json.loads(json.dumps(TINY))
    for path, value in paths.items():
        *parents, last = [int(key) if key.isdigit() else key for key in path.split("__")]
        at = grid
        for key in parents:
            at = at[key]
        at[last] = value
    return grid


def write(path: Path, grid: object) -> str:
    path.write_text(yaml.safe_dump(grid), encoding="utf-8")
    return str(path)


def test_from_plan_to_table_and_figures(tmp_path, here, capsys):
    """The smoke grid as a user runs it; a second run has nothing to do; a lost record comes back the same."""
    assert "6 to do" in here("plan", "smoke")[1]
    assert not (tmp_path / "results").exists()
    code, out = here("run", "smoke", "--executor", "local")
    assert code == 0, out
    contents = Store(tmp_path / "results/local").read("smoke")
    assert (len(contents.done), contents.failed, contents.problems) == (6, {}, [])
    order = ["Kaiming uniform", "Trunc normal", "Mimetic", "Imp.-3", "Imp.-5", "ConViT"]
    assert Store(tmp_path / "results/local").layout("smoke").rows == order, "the grid's"
    for record in contents.done.values():
        assert [row.epoch for row in record.history] == [1, 2]
        assert (record.dataset.train, record.dataset.test) == (200, 360)
        assert record.environment["packages"]["torch"]
        assert (record.init.real_images is not None) == (record.row.startswith("Imp."))
    code, again = here("run", "smoke")
    assert (code, "6 recorded already" in again, "nothing to do: all 6 recorded" in again) == (0, True, True)
    assert "6 done" in here("plan", "smoke")[1]

    lost = contents.done[min(contents.done)]
    path = tmp_path / f"results/local/smoke/{lost.run_id}.json"
    path.write_text(path.read_text()[:500])
    _, status = here("status", "smoke")
    (path.with_name("notes.json")).write_text("{}")
    code, again = here("run", "smoke", "--executor", "inline")
    for printed in (status, again):
        assert f"not a record, renamed when its run is carried out again: results/local/smoke/{lost.run_id}" in printed
    assert "not a record, left alone: results/local/smoke/notes.json" in again
    assert code == 0
    assert list(path.parent.glob(f"{lost.run_id}.json.invalid-*"))
    redone = Store(tmp_path / "results/local").read("smoke").done[lost.run_id]
    timeless = [row.model_dump(exclude={"seconds", "images_per_s"}) for row in redone.history]
    assert timeless == [row.model_dump(exclude={"seconds", "images_per_s"}) for row in lost.history]

    assert f"{lost.score:.2f}%" in here("show", lost.run_id[:6])[1]
    assert tables.main([]) == 0
    assert "Mimetic" in capsys.readouterr().out
    assert r"\toprule" in (tmp_path / "results/local/smoke/tables/smoke.tex").read_text()
    assert figures.main([]) == 0
    for name in ("accuracy.pdf", "accuracy.png", "attention_offsets.pdf", "attention_offsets.png"):
        assert (tmp_path / "results/local/smoke/figures" / name).stat().st_size > 5_000


def test_one_diverging_run_leaves_a_failure_record_and_the_others_go_on(tmp_path, here):
    grid = changed()
    grid["blocks"].append(
        {**grid["blocks"][0], "recipe": {"name": "small", "epochs": 2, "lr": 1e20, "eps": 1e-30}, "seeds": [7]}
    )
    path = write(tmp_path / "tiny.yaml", grid)
    assert here("run", path, "--executor", "inline")[0] == 1
    contents = Store(tmp_path / "results/local").read("tiny")
    assert len(contents.done) == 2
    assert {(failed.error, failed.spec.seed) for failed in contents.failed.values()} == {("Diverged", 7)}
    assert "Diverged" in here("status", path)[1]
    assert "Traceback" in next(iter(contents.failed.values())).traceback


def test_a_dataset_that_is_not_there_is_a_skip_with_a_reason(tmp_path, here, capsys):
    grid = changed()
    grid["blocks"].append({**grid["blocks"][0], "datasets": ["svhn"]})
    path = write(tmp_path / "tiny.yaml", grid)
    _, planned = here("plan", path)
    assert "2 skip" in planned
    assert "train_32x32.mat" in planned
    assert here("run", path, "--no-download", "--executor", "inline")[0] == 0
    contents = Store(tmp_path / "results/local").read("tiny")
    assert len(contents.done) == 2
    assert all("train_32x32.mat" in skipped.reason for skipped in contents.skipped.values())
    assert tables.main([]) == 0
    assert "train_32x32.mat" in capsys.readouterr().out


def test_a_grid_of_a_transformer_and_a_convmixer(tmp_path, here, capsys):
    """Each method runs where it fits, batches that BatchNorm needs whole are not cut, tables come out."""
    grid = changed(rows__Impulse={"base": "kaiming_uniform", "method": "conv_filters"})
    mixer = {"preset": "convmixer_micro", "image_size": 8, "patch_size": 2, "width": 16, "depth": 1}
    grid["blocks"].append({**grid["blocks"][0], "model": mixer})
    path = write(tmp_path / "tiny.yaml", grid)
    assert here("run", path, "--executor", "inline", "--micro-batch", "7")[0] == 2
    assert not Store(tmp_path / "results/local").read("tiny").done
    assert here("run", path, "--executor", "inline", "--micro-batch", "32", "--only", "arch=convmixer")[0] == 0
    code, printed = here("run", path, "--executor", "inline")
    assert code == 0
    why = "method 'mimetic': ConvMixer has no attention layer"
    assert f"skipping Mimetic, digits[100] (arch convmixer): {why}" in printed
    contents = Store(tmp_path / "results/local").read("tiny")
    done = {(run.row, run.spec.model.arch): run for run in contents.done.values()}
    assert set(done) == {(row, arch) for row in grid["rows"] for arch in ("vit", "convmixer")} - {
        ("Mimetic", "convmixer"),
        ("Impulse", "vit"),
    }
    assert len(contents.skipped) == 2
    assert "nothing is left to do" in here("plan", path, "--estimate")[1], "what does not fit takes no time"
    trained, frozen = done["Kaiming uniform", "convmixer"], done["Impulse", "convmixer"]
    assert trained.parameters - frozen.parameters == 16 * (3 * 3 + 1)
    assert here("reproduce", frozen.run_id)[0] == 0
    assert tables.main(["--all"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "ConvMixer width 16 depth 1, 3 x 3 filters, patch 2" in printed


def test_a_path_that_is_no_utf8_costs_no_record(tmp_path, here):
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=1))
    folder = os.fsdecode(b"x\xe9")
    code, _ = here("run", path, "--only", "method=none", "--executor", "inline", "--data-dir", folder)
    assert code == 0
    (record,) = Store(tmp_path / "results/local").read("tiny").done.values()
    assert "x\\udce9" in record.environment["argv"][-1]


CROWDED = '''
import time
from pathlib import Path
from typing import ClassVar

import torch

from initializers.registry import Initializer


class Crowded(Initializer):
    """Number 2 has no memory while number 1 is at work on the same GPU, which it is until number 2 has failed."""

    name: ClassVar[str] = "crowded"
    touches: ClassVar[tuple[str, ...]] = ()
    deterministic: ClassVar[bool] = True
    number: int = 0

    def apply(self, model, generator, progress):
        at_work, failed = Path("at-work"), Path("failed")
        if self.number == 1:
            at_work.touch()
            self.wait(failed)
            at_work.unlink()
        elif not failed.exists():
            self.wait(at_work)
        if at_work.exists():
            failed.touch()
            raise torch.OutOfMemoryError("CUDA out of memory")

    def wait(self, file):
        for _ in range(90_000):
            if file.exists():
                return
            time.sleep(0.01)
        raise TimeoutError(file)
'''


def test_runs_that_a_gpu_has_no_memory_for_at_once_are_tried_again_one_by_one(tmp_path, here, monkeypatch):
    (tmp_path / "crowded.py").write_text(CROWDED)
    monkeypatch.syspath_prepend(tmp_path)
    method = {"name": "crowded:Crowded"}
    rows = {f"row {n}": {"base": "trunc_normal", "method": {**method, "number": n}} for n in (1, 2)}
    write(tmp_path / "tiny.yaml", changed(rows=rows))
    code, out = here("run", "tiny.yaml", "--executor", "local", "--workers", "2", "--brief")
    assert code == 0, out
    assert out.count("out of memory beside other runs; it is tried again alone") == 1
    assert "OutOfMemoryError" not in out
    assert out.count("(1 seed)") == 2, "each row ends once"
    assert "2 runs finished, 0 failed" in out
    contents = Store(tmp_path / "results" / "local").read("tiny")
    assert len(contents.done) == 2
    assert contents.failed == {}


def test_status_of_a_launched_study_needs_no_data_dir(tmp_path, here):
    model = {"preset": "vit_micro", "image_size": 32, "patch_size": 4}
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__datasets=["cifar10"], blocks__0__model=model))
    assert "2 skip" in here("status", path)[1], "never launched: the data folder decides"
    (tmp_path / "results/local/tiny").mkdir(parents=True)
    assert "2 to do" in here("status", path)[1], "launched, and no run was skipped for its data"
    assert "2 skip" in here("plan", path)[1], "what `run` would do now"


def test_the_hours_of_a_model_that_was_timed_on_other_data_are_known(tmp_path, here, recorded):
    Store(tmp_path / "results/local").write(recorded)
    model = recorded.spec.model.model_dump(mode="json")
    content = changed(
        rows={"Kaiming": {"base": "kaiming_uniform"}}, blocks__0__model=model, blocks__0__datasets=["digits"]
    )
    printed = here("plan", write(tmp_path / "mine.yaml", content), "--estimate", "--device", "cpu")[1]
    assert ("its model" in printed, "unknown" in printed) == (True, False)


def test_a_dry_run_says_what_force_would_do(here):
    (first, *_) = grid.load("smoke").cells
    code, printed = here("run", "smoke", "--executor", "local", "--dry-run", "--force", first.run_id)
    said = f"--force: {first.run_id} would begin anew, Kaiming uniform, digits[200], seed 0"
    assert (code, said in printed) == (0, True)
