"""The command line: bad input in this process, whole studies as a user runs them, in processes of their own."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

from analysis.figures import __main__ as figures
from analysis.tables import __main__ as tables
from benchmark.datasets.cifar import CIFAR10
from benchmark.records.store import Store
from runners.cli import main as cli
from tests.processes import PATIENCE, alive, children, start, until

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


@pytest.fixture
def error(capsys, monkeypatch, tmp_path):
    """Run the command line here; return the one line it prints as an error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITINIT_DATA", str(tmp_path / "nothing"))

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["vitinit", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 2
        text = capsys.readouterr().err
        assert "Traceback" not in text
        assert text.count("\n") == 1, text
        return text

    return run


def test_unknown_names_give_the_nearest_and_the_list(error, tmp_path):
    assert "did you mean 'small'" in error("plan", "smal")
    assert "smoke" in error("plan", "nothing-like-it")
    assert "did you mean 'initializers'" in error("list", "initialisers")
    for path, value, near in (
        ("blocks__0__datasets", ["cifar11"], "cifar10"),
        ("blocks__0__recipe__name", "smal", "small"),
        ("blocks__0__model__preset", "vit_tini", "vit_tiny"),
        ("rows__Mimetic__method", "mimetc", "mimetic"),
        ("rows__Mimetic__base", "kaiming_unifrom", "kaiming_uniform"),
    ):
        text = error("plan", write(tmp_path / "grid.yaml", changed(**{path: value})))
        assert f"did you mean '{near}'" in text
        assert "available: " in text


def test_a_bad_grid_says_which_field_and_what_is_allowed(error, tmp_path):
    gated = {"preset": "convit_micro", "depth": 2, "gpsa_layers": 1, "heads": 3}
    unknown_solver = {"name": "impulse", "kernel_size": 3, "solver": "grad"}
    known = "solver: unknown name 'grad'; did you mean 'gradient'? available: gradient, rotation, svd"
    for path, value, words in (
        ("blocks__0__model__patch_size", 3, ["image_size 8", "patch_size 3", "divisible"]),
        ("blocks__0__model__heads", 5, ["width 48", "heads 5"]),
        ("blocks__0__model__depht", 2, ["unknown field of a ViT", "depht", "did you mean 'depth'"]),
        ("blocks__0__recipe__lr", -1, ["lr", "greater than 0", "-1"]),
        ("blocks__0__recipe__epochs", "many", ["epochs", "integer", "many"]),
        ("blocks__0__recipe__precision", "fp8", ["precision", "fp32", "fp8"]),
        ("blocks__0__seeds", [], ["seeds", "is empty"]),
        ("rows__Mimetic__method", {"name": "mimetic", "beta": 1}, ["beta", "unknown field", "beta_qk"]),
        ("rows__Mimetic__method", {"name": "mimetic", "beta_qk": "x"}, ["beta_qk", "number", "'x'"]),
        ("rows__Mimetic__method", {"name": "impulse", "kernel_size": 5}, ["kernel_size 5", "token grid 4x4"]),
        ("rows__Mimetic__method", {"name": "impulse", "kernel_size": 4}, ["odd", "4"]),
        ("rows__Mimetic__method", {"name": "impulse", "solver": "newton"}, ["solver", "gradient", "newton"]),
        ("rows__Mimetic__method", "convit_gpsa", ["gated positional", "convit"]),
        ("rows__Mimetic__method", "kaiming_uniform", ["is a base"]),
        (
            "rows__Mimetic",
            {"base": "trunc_normal", "method": "convit_gpsa", "model": gated},
            ["square number of heads", "3"],
        ),
        ("rows__Mimetic", {"base": "kaiming_uniform"}, ["same run", "Kaiming uniform"]),
        ("title", None, ["title"]),
        ("rows__Mimetic__method", unknown_solver, [known]),
        ("rows__Mimetic__method", "here/mine.py:Mine", ["'here/mine.py:Mine': a grid takes package.module:Class"]),
        ("blocks__0__recipe__epoch", 1, ["block 1: recipe 'small': unknown field 'epoch'; did you mean 'epochs'"]),
        ("blocks__0__datasets", [{"name": "digits", "size": 4}], ["dataset 'digits': unknown field 'size'; did you"]),
        ("blocks__0__recipe__rand_augment", "rnd-m9", ["rand_augment 'rnd-m9' is not as timm has it"]),
        ("blocks__0__datasets", [{"name": "digits", "train_size": 20}], ["batch_size 32"]),
        ("blocks__0__datasets", ["folder:nowhere"], ["nowhere"]),
    ):
        text = error("run", write(tmp_path / "grid.yaml", changed(**{path: value})))
        for word in words:
            assert word in text, text


def test_the_name_of_ones_own_grid_is_answered_with_its_file(error, tmp_path):
    write(tmp_path / "my.yaml", TINY)
    (tmp_path / "results/local/other").mkdir(parents=True)
    for name in ("my", "other"):
        for command in ("status", "plan"):
            assert error(command, name) == f"error: unknown grid '{name}'; did you mean {name}.yaml?\n"


def test_bad_options_and_files(error, tmp_path):
    assert "names no seed" in error("plan", "smoke", "--seeds", "3-1")
    assert "did you mean 'dataset'" in error("plan", "smoke", "--only", "datset=digits")
    assert "KEY=PATTERN" in error("plan", "smoke", "--only", "digits")
    text = error("plan", "smoke", "--only", "dataset=cifar10")
    assert "--only: no run of grid 'smoke' matches: unknown dataset 'cifar10'; available: digits" in text
    assert "did you mean 'Mimetic'" in error("plan", "smoke", "--only", "row=Mimetc")
    assert "matches all of them" in error("plan", "smoke", "--only", "row=Mimetic", "--only", "base=trunc_normal")
    assert "no record" in error("show", "0123")
    assert "cannot read" in error("plan", str(tmp_path / "none.yaml"))
    (tmp_path / "list.yaml").write_text("- a\n- b\n")
    assert "mapping" in error("plan", str(tmp_path / "list.yaml"))
    (tmp_path / "broken.yaml").write_text("title: [\n")
    assert "not YAML" in error("plan", str(tmp_path / "broken.yaml"))
    (tmp_path / "code.yaml").write_text("!!python/object/apply:os.system ['echo no']\n")
    assert "not YAML" in error("plan", str(tmp_path / "code.yaml"))
    (tmp_path / "a file").write_text("")
    assert "is a file, and a folder is needed" in error(
        "run", write(tmp_path / "grid.yaml", TINY), "--results", str(tmp_path / "a file"), "--executor", "inline"
    )
    (tmp_path / "pictures" / "cats").mkdir(parents=True)
    empty = changed(blocks__0__datasets=[f"folder:{tmp_path / 'pictures'}"])
    assert "pictures" in error("run", write(tmp_path / "folder.yaml", empty))


def test_a_damaged_data_file_stops_before_anything_trains(error, tmp_path, monkeypatch):
    for file in CIFAR10.files:
        (tmp_path / "data" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / file).write_bytes(b"not the published one")
    grid = changed(blocks__0__datasets=["cifar10"], blocks__0__model__image_size=32)
    monkeypatch.setenv("VITINIT_DATA", str(tmp_path / "data"))
    assert "data_batch_1 is damaged" in error("run", write(tmp_path / "grid.yaml", grid))
    assert not (tmp_path / "results").exists()


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
    code, again = here("run", "smoke", "--executor", "local")
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
    """Each method runs where it fits, batches that BatchNorm needs whole are not cut, tables and figures come out."""
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
    assert figures.main([]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "ConvMixer width 16 depth 1, 3 x 3 filters, patch 2" in printed


@pytest.mark.parametrize(("number", "early"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_stopping_leaves_nothing_broken_and_says_how_to_go_on(tmp_path, number, early):
    """When runs have begun, or while what they need is still being read."""
    path = write(tmp_path / "tiny.yaml", changed(blocks__0__recipe__epochs=300, blocks__0__seeds=[0, 1]))
    process = start("run", path, "--workers", "2", cwd=tmp_path)
    claimed = tmp_path / "results/local/tiny/unfinished"
    until(lambda: early or list(claimed.glob("*/claim-*")), "the first claim", process)
    until(lambda: len(children(process.pid)) > 2, "resource tracker, fork server, another one", process)
    offspring = children(process.pid)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, output
    assert "same command goes on" in output
    contents = Store(tmp_path / "results/local").read("tiny")
    assert contents.failed == {}
    assert contents.problems == []
    until(lambda: not any(map(alive, offspring)), "processes that should end")


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
