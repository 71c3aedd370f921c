"""Whole studies as a user runs them; own methods and datasets; what options come to."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torchvision
import yaml
from PIL import Image
from torchvision.datasets.utils import download_and_extract_archive

from vitinit.analysis.tables import __main__ as tables
from vitinit.benchmark.datasets import registry
from vitinit.benchmark.datasets.dataset import InMemory
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.maps import read_maps
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, located
from vitinit.runners.basics import environment
from vitinit.runners.basics.environment import set_flags
from vitinit.runners.basics.setting import Execution
from vitinit.runners.loaders import choice
from vitinit.runners.training.checkpoint import Checkpoints

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


def write(path: Path, grid: object, **how: bool) -> str:
    path.write_text(yaml.safe_dump(grid, **how), encoding="utf-8")
    return str(path)


@pytest.mark.long
def test_from_plan_to_table(tmp_path, here, capsys):
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
    code, again = here("run", "smoke", "--executor", "local")  # in as many threads as before
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


@pytest.mark.long
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

from vitinit.initializers.registry import Initializer


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


@pytest.mark.long
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


def test_the_hours_of_what_is_left_are_those_of_records_of_this_machine(tmp_path, here, recorded, monkeypatch):
    content = changed(
        rows={"Kaiming": {"base": "kaiming_uniform"}},
        blocks__0__model=recorded.spec.model.model_dump(mode="json"),
        blocks__0__datasets=[recorded.spec.dataset.model_dump(mode="json", exclude_defaults=True)],
        blocks__0__recipe={
            **recorded.spec.recipe.model_dump(mode="json", exclude_defaults=True),
            "epochs": 7,
            "lr": 0.1,
        },
        blocks__0__seeds=[0, 1],
    )
    path = write(tmp_path / "tiny.yaml", content)
    assert " hours, one run" not in here("plan", path)[1], "nothing is recorded"
    Store(tmp_path / "results/local").write(recorded.model_copy(update={"study": "tiny"}))
    hours = 2 * 7 * recorded.seconds / recorded.spec.recipe.epochs / 3600
    monkeypatch.setattr(environment, "device_name", lambda device: recorded.environment["processor"])
    assert f"{hours:.2f} hours, one run at a time" in here("plan", path)[1]
    monkeypatch.setattr(environment, "device_name", lambda device: "another")
    assert " hours, one run" not in here("plan", path)[1]


def test_a_dry_run_says_what_force_would_do(here):
    (first, *_) = grid.load("smoke").cells
    code, printed = here("run", "smoke", "--executor", "local", "--dry-run", "--force", first.run_id)
    said = f"--force: {first.run_id} would begin anew, Kaiming uniform, digits[200], seed 0"
    assert (code, said in printed) == (0, True)


# A newcomer's own method or dataset: bugs and edits are said where they are, and what can goes on all the same.


WRONG = """
from typing import ClassVar

import torch

from vitinit.initializers.registry import Initializer


class Wrong(Initializer):
    name: ClassVar[str] = "wrong"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)

    def apply(self, model, generator, progress):
        torch.zeros(2) @ torch.zeros(3)  # the 14th line
"""


def test_a_failure_says_its_line_and_how_to_see_the_traceback_and_is_left_alone_after(tmp_path, here, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wrong.py").write_text(WRONG)
    rows = {"Base": {"base": "trunc_normal"}, "Wrong": {"base": "trunc_normal", "method": "wrong:Wrong"}}
    grid = write(tmp_path / "tiny.yaml", changed(rows=rows, blocks__0__recipe__epochs=1))
    arguments = ("run", "tiny.yaml", "--executor", "inline", "--no-probes")
    code, first = here(*arguments)
    assert code == 1
    assert "(wrong.py:14)" in first
    assert "after 1 epoch," in first
    assert "1 run finished, 1 failed" in first
    (failed,) = Store(tmp_path / "results/local").read("tiny").failed.values()
    assert f"see: vitinit show {failed.run_id}: the traceback" in first
    shown = here("show", failed.run_id)[1].splitlines()
    lines = failed.traceback.splitlines()
    assert shown[-len(lines) :] == lines

    code, again = here(*arguments)
    assert code == 1
    left = again.index("1 run failed before and left alone; to run again: --retry-failed")
    assert left < again.index("nothing to do: 1 recorded, 1 failed") < again.index("analysis.tables --study tiny")
    assert not re.search(r"0/0|finished", again)
    assert here("run", grid, *arguments[2:], "--only", "row=Base")[1].count("nothing to do: 1 recorded") == 1


def test_the_line_of_an_error_in_the_standard_library_is_that_of_its_caller():
    try:
        subprocess.run(["no such program"], check=True)
    except OSError as error:
        line = sys.exc_info()[2].tb_lineno
        assert located(error) == f"{error} (test_cli.py:{line})"
    assert located(ValueError("never raised")) == "never raised"


DATASET = """
import numpy as np

from vitinit.benchmark.datasets.dataset import InMemory


class Mine(InMemory):
    def read(self, data_dir):
        images = np.zeros((20, 3, 8, 8), np.uint8)
        labels = np.arange(20) % 2
        {line}
        return (images, labels), (images, labels), ("dark", "bright")
"""


def mine(line: str, images=(20, 20)) -> InMemory:
    space: dict = {}
    exec(compile(DATASET.format(line=line), "/home/newcomer/mine.py", "exec"), space)
    return space["Mine"](name="mine", images=images, classes=2)


NO_DATA = {
    "images = images.astype(np.float32)": "images of float32 20 x 3 x 8 x 8; they are uint8, N x 3 x S x S",
    "images = images[:, 0]": "images of uint8 20 x 8 x 8;",
    "images = images[..., :4]": "images of uint8 20 x 3 x 8 x 4;",
    "labels = labels / 2": "labels of float64 20; they are integers, N",
    "labels = labels[:7]": "labels of int64 7;",
    "labels = labels + 1": "labels from 1 to 2; of 2 classes they are 0 to 1",
    "labels = labels - 1": "labels from -1 to 0;",
    "images, labels = images[:19], labels[:19]": "19 training images; its `images` says 20",
}


def test_arrays_that_no_dataset_has_are_one_line_with_its_name(tmp_path):
    for line, says in NO_DATA.items():
        with pytest.raises(VitinitError, match=r"^dataset mine: its `read` gives .*training ") as refused:
            mine(line).open(DatasetSpec.model_construct(name="mine"), tmp_path)
        assert says in str(refused.value)
    mine("")._splits(tmp_path)


def test_a_bug_in_a_dataset_fails_its_runs_and_no_others(tmp_path, here, monkeypatch):
    bugs = {"images = images.astype(np.float32)": "dataset mine: its `read` gives training images of float32"}
    bugs["images = images.no_such_thing"] = "'no_such_thing' (mine.py:11)"
    for name, line in zip(("mine", "typo"), bugs, strict=True):
        monkeypatch.setitem(registry.REGISTRY.known, name, mine(line))
    both = changed(blocks__0__datasets=["mine", "typo", {"name": "digits", "train_size": 100}])
    both["rows"].pop("Mimetic")
    both["blocks"][0]["recipe"] |= {"epochs": 1, "batch_size": 20}
    path = write(tmp_path / "tiny.yaml", both)
    code, out = here("run", path, "--executor", "inline", "--no-probes")
    assert (code, "1 run finished, 2 failed" in out) == (1, True)
    contents = Store(tmp_path / "results/local").read("tiny")
    assert {run.spec.dataset.name for run in contents.done.values()} == {"digits"}
    for run in contents.failed.values():
        assert list(bugs.values())[run.spec.dataset.name == "typo"] in run.message
    assert out.index("failed") < out.index("after 1 epoch"), "what fails at once comes first"
    both["blocks"][0]["datasets"] = ["mine"]
    assert here("run", write(tmp_path / "alone.yaml", both), "--executor", "inline")[0] == 2, "nothing can be read"
    assert not (tmp_path / "results/local/alone").exists()


EDITED = """
from typing import ClassVar

import torch

from vitinit.initializers.attention import attention_layers
from vitinit.initializers.registry import Initializer


class Mine(Initializer):
    name: ClassVar[str] = "mine"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)

    @torch.no_grad()
    def apply(self, model, generator, progress):
        for layer in attention_layers(model):
            layer.value_DD.mul_(0.5)
"""


def test_runs_of_before_are_named_by_plan_status_and_run(tmp_path, here, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    rows = {
        "Mine": {"base": "trunc_normal", "method": "mine:Mine"},
        "Placebo": {"base": "trunc_normal", "method": {"name": "placebo", "of": "mine:Mine"}},
    }
    grid = changed(rows=rows, blocks__0__recipe__epochs=1)
    write(tmp_path / "tiny.yaml", grid)

    def edited(text: str) -> None:
        (tmp_path / "mine.py").write_text(text)
        sys.modules.pop("mine", None)  # as in a process of its own

    edited(EDITED)
    assert here("run", "tiny.yaml", "--executor", "inline", "--no-probes")[0] == 0
    store = Store(tmp_path / "results/local")
    of_file = hashlib.sha256(EDITED.encode()).hexdigest()[:16]
    whole = store.read("tiny").done
    for run_id, record in store.read("tiny").done.items():
        assert record.environment["initializers"] == record.sources == whole[run_id].sources
        assert record.sources["mine:Mine"] == of_file
        assert record.sources.keys() - {"placebo"} == {"trunc_normal", "mine:Mine"}
    assert "other code" not in here("plan", "tiny.yaml")[1]

    edited(EDITED + "\n# another")
    for command in (("plan",), ("status",), ("run", "--executor", "inline")):
        code, printed = here(command[0], "tiny.yaml", *command[1:])
        assert code == 0
        assert printed.count("2 runs are done with other code of mine:Mine than is here: vitinit run GRID --force") == 1
        assert "other code of trunc_normal" not in printed
        assert all(run_id in printed for run_id in whole)
    first, second = whole
    assert here("run", "tiny.yaml", "--executor", "inline", "--no-probes", "--force", first)[0] == 0
    printed = here("plan", "tiny.yaml")[1]
    assert "1 run is done with other code of mine:Mine than is here: vitinit run GRID --force RUN_ID ..., " in printed
    assert f"({second})" in printed


def test_a_row_with_a_new_label_keeps_the_one_of_its_records(tmp_path, here):
    """Tables find its runs under that, and nobody waits for a row of the new name."""

    def renamed(to: str) -> None:
        rows = {"Base": {"base": "trunc_normal"}, to: {"base": "trunc_normal", "method": "mimetic"}}
        grid = changed(rows=rows, blocks__0__recipe__epochs=1) | {"contrasts": [[to, "Base"]]}
        write(tmp_path / "tiny.yaml", grid)

    store, said = Store(tmp_path / "results/local"), "row 'Mimetic, \"ours\"' is recorded as 'Mimetic é', and tables"
    renamed("Mimetic é")
    assert here("run", "tiny.yaml", "--executor", "inline", "--no-probes")[0] == 0
    layout = store.layout("tiny")
    assert layout.rows == ["Base", "Mimetic é"]
    assert {record.row for record in store.read("tiny").done.values()} == {"Base", "Mimetic é"}
    assert "is recorded as" not in here("plan", "tiny.yaml")[1]
    renamed('Mimetic, "ours"')
    for command in ("plan", "status", "run"):
        code, printed = here(command, "tiny.yaml", *(["--executor", "inline"] if command == "run" else []))
        assert (code, said in " ".join(printed.split())) == (0, True)
    assert store.layout("tiny") == layout


# Options of `vitinit run`, in records and beside them.


MINE = ("--only", "row=Kaiming*", "--executor", "inline")


@pytest.fixture(autouse=True)
def _flags_and_folder_as_before(undisturbed):
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


def test_missing_datasets_are_downloaded_and_those_that_cannot_be_are_skipped(tmp_path, vitinit, server, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)
    with zipfile.ZipFile(tmp_path / "served/EuroSAT.zip", "w") as packed:
        for number, image in enumerate(pixels):
            Image.fromarray(image).save(tmp_path / "one.png")
            packed.write(tmp_path / "one.png", f"2750/{number % 10}/{number}.png")

    def fetch(url: str, download_root: str, md5: str) -> None:
        download_and_extract_archive(f"{server}/{url.rpartition('/')[2]}", download_root)

    monkeypatch.setattr(torchvision.datasets.eurosat, "download_and_extract_archive", fetch)
    monkeypatch.setattr(torchvision.datasets.STL10, "url", f"{server}/none.tar.gz")
    monkeypatch.setitem(vars(registry.get("eurosat")), "images", (10, 10))
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
    assert [(record.spec.dataset.name, record.dataset.train) for record in contents.done.values()] == [("eurosat", 10)]
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
