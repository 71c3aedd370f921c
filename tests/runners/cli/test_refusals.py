"""Bad input is one line that says what is wrong and what is allowed, before anything begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.processes import ROOT
from tests.runners.cli.test_cli import TINY, changed, write
from vitinit.benchmark.datasets.cifar import CIFAR10
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli import __main__ as command
from vitinit.runners.cli import plan as cli_plan

pytestmark = pytest.mark.usefixtures("undisturbed")


@pytest.fixture
def error(vitinit):
    """Run the command line in the test's folder; return the one line that it prints as an error."""

    def run(*arguments: object) -> str:
        code, _, err = vitinit(*arguments)
        assert (code, err[:7], err.count("\n")) == (2, "error: ", 1), err
        return err

    return run


UNKNOWN = {
    "blocks__0__datasets": (["cifar11"], "cifar10"),
    "blocks__0__recipe__name": ("smal", "small"),
    "blocks__0__model__preset": ("vit_tini", "vit_tiny"),
    "rows__Mimetic__method": ("mimetc", "mimetic"),
    "rows__Mimetic__base": ("kaiming_unifrom", "kaiming_uniform"),
}


def test_unknown_names_give_the_nearest_and_the_list(error):
    assert "did you mean 'small'" in error("plan", "smal")
    assert "smoke" in error("plan", "nothing-like-it")
    assert "did you mean 'initializers'" in error("list", "initialisers")
    for path, (value, near) in UNKNOWN.items():
        text = error("plan", write(Path("grid.yaml"), changed(**{path: value})))
        assert f"did you mean '{near}'" in text
        assert "available: " in text
    write(Path("my.yaml"), TINY)
    Path("results/local/other").mkdir(parents=True)
    for name in ("my", "other"):
        for words in ("status", "plan"):
            assert error(words, name) == f"error: unknown grid '{name}'; did you mean {name}.yaml?\n"


METHOD = "rows__Mimetic__method"
GATED = {"preset": "convit_micro", "depth": 2, "gpsa_layers": 1, "heads": 3}
BAD_GRIDS = [
    ("blocks__0__model__heads", 5, "width 48 .*heads 5"),
    ("blocks__0__recipe__epochs", "many", "epochs.*integer.*many"),
    ("blocks__0__recipe__precision", "fp8", "precision.*fp32.*fp8"),
    ("blocks__0__seeds", [], "seeds.*is empty"),
    ("title", None, "title"),
    (METHOD, {"name": "mimetic", "beta": 1}, "unknown field 'beta'.*beta_qk"),
    (METHOD, {"name": "mimetic", "beta_qk": "x"}, "beta_qk.*number.*'x'"),
    (METHOD, {"name": "impulse", "kernel_size": 5}, "kernel_size 5.*token grid 4x4"),
    (METHOD, {"name": "impulse", "solver": "grad"}, "solver: unknown name 'grad'; did you mean 'gradient'. available"),
    (METHOD, "convit_gpsa", "gated positional.*ConViT"),
    (METHOD, "here/mine.py:Mine", "cannot read .*here/mine.py: No such file"),
    ("rows__Mimetic", {"base": "trunc_normal", "method": "convit_gpsa", "model": GATED}, "square number of heads.*3"),
    ("rows__Mimetic", {"base": "kaiming_uniform"}, "same run.*Kaiming uniform"),
    ("blocks__0__recipe__epoch", 1, "block 1: recipe 'small': unknown field 'epoch'; did you mean 'epochs'"),
    ("blocks__0__datasets", [{"name": "digits", "size": 4}], "dataset 'digits': unknown field 'size'; did you"),
]


def test_a_bad_grid_says_which_field_and_what_is_allowed():
    for path, value, says in BAD_GRIDS:
        with pytest.raises(VitinitError, match=says):
            grid.load(write(Path("grid.yaml"), changed(**{path: value})))


def test_files_and_folders_that_cannot_be_used(error, monkeypatch):
    assert "no record" in error("show", "0123")
    assert "cannot read" in error("plan", "none.yaml")
    code = "!!python/object/apply:os.system ['echo no']\n"
    for text, says in (("- a\n- b\n", "mapping"), ("title: [\n", "not YAML"), (code, "not YAML")):
        Path("bad.yaml").write_text(text)
        assert says in error("plan", "bad.yaml")
    Path("a file").touch()
    tiny = write(Path("tiny.yaml"), TINY)
    for words in (("run", tiny, "--results"), ("plan", tiny, "--data-dir"), ("proposition", "--data-dir")):
        assert "is no folder, and one is needed" in error(*words, "a file")
    assert "/dev/null is no folder" in error("plan", tiny, "--results", "/dev/null/below")
    Path("pictures/cats").mkdir(parents=True)
    few = {"name": "digits", "train_size": 20}
    for data, says in (("folder:pictures", "pictures"), ("folder:nowhere", "nowhere"), (few, "batch_size 32")):
        assert says in error("run", write(Path("data.yaml"), changed(blocks__0__datasets=[data])))
    for words in (("plan", "x" * 300), ("plan", "smoke", "--results", "x" * 300), ("status", "x" * 300 + ".yaml")):
        error(*words)
    for file in CIFAR10.files:
        (Path("data") / file).parent.mkdir(parents=True, exist_ok=True)
        (Path("data") / file).write_bytes(b"not the published one")
    content = changed(blocks__0__datasets=["cifar10"], blocks__0__model__image_size=32)
    damaged = ("run", write(Path("grid.yaml"), content), "--data-dir", "data")
    assert "data_batch_1 is damaged" in error(*damaged), "before anything trains"
    assert not Path("results/local/grid").exists()


ONLY = ("plan", "smoke", "--only")


def test_options_that_cannot_be(error, vitinit):
    assert "did you mean 'dataset'" in error(*ONLY, "datset=digits")
    assert "KEY=PATTERN" in error(*ONLY, "digits")
    said = "--only: no run of grid 'smoke' matches: unknown dataset 'cifar10'; available: digits"
    assert said in error(*ONLY, "dataset=cifar10")
    assert "did you mean 'Mimetic'" in error(*ONLY, "row=Mimetc")
    assert "matches all of them" in error(*ONLY, "row=Mimetic", "--only", "base=trunc_normal")
    assert "--maps-at names more epochs for --keep-maps" in error("run", "smoke", "--maps-at", "1")
    late = error("run", "smoke", "--keep-maps", "--maps-at", "1", "--maps-at", "3")
    assert late == "error: --maps-at 3: the last epoch of these runs is 2\n"
    code, _, said = vitinit("run", "smoke", "--limit", "0")
    assert (code, "--limit" in said) == (2, True), "in the words of typer"


def test_what_is_for_another_executor_is_refused_and_force_names_a_run(error):
    Path("other.yaml").write_text("hello: 1\n")
    for more in ([], ["--dry-run"]):
        run = ["run", "smoke", *more, "--executor"]
        for option in (("--profile", "other.yaml"), ("--runs-per-job", "3")):
            said = f"{option[0]} is for the executor slurm, and the runs would be carried out by local"
            assert said in error(*run, "local", *option)
        assert "--workers 5: the executor inline carries out one run" in error(*run, "inline", "--workers", "5")
        assert "--force ../x: no run of this grid" in error(*run, "local", "--force", "../x")
        assert "6 runs of this grid" in error(*run, "local", "--force", "")


def test_seeds_on_the_command_line_that_cannot_be():
    for seeds, message in (
        ("0-999999999999", "names more than 10,000 seeds"),
        ("0-9999,10000", "names more than 10,000 seeds"),
        ("9" * 5_000, "write 0-4 or 0,2,7"),
        ("0-3,2", "seed 2 is there twice"),
        ("-1", "write 0-4 or 0,2,7"),
        ("", "write 0-4 or 0,2,7"),
        ("1-x", "1-x"),
        ("0-0,3-1", "names no seed"),
    ):
        with pytest.raises(VitinitError, match=message):
            cli_plan._seeds(seeds)


def test_what_is_no_image_of_a_folder_is_counted_by_kind_and_val_as_the_test_split_is_said(vitinit):
    for name in ("pets/cat", "pets/dog", "split/train/a", "split/train/b", "split/val/a", "split/val/b"):
        Path(name).mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(f"{name}/{number}.png")
    for name in ("cat", "dog"):
        Path(f"pets/{name}/more").mkdir()
        for ending in (".gif", ".GIF", ".heic", ""):
            Path(f"pets/{name}/x{ending}").write_bytes(b"x")
        Path(f"pets/{name}/.hidden.gif").write_bytes(b"x")
    Path("pets/loose.png").write_bytes(b"x")
    printed = vitinit("plan", write(Path("pets.yaml"), changed(blocks__0__datasets=["folder:pets"])))[1]
    line = next(line for line in printed.splitlines() if line.startswith("folder:pets: "))
    assert "folder:pets: 11 left out: 4 .gif, 2 .heic, 2 folder, 2 no extension, 1 .png outside of a class" in line
    assert "images are .jpg, .jpeg, .png" in line
    halves = write(Path("split.yaml"), changed(blocks__0__datasets=["folder:split"], blocks__0__recipe__batch_size=4))
    assert "accuracy is measured on val" in vitinit("plan", halves)[1]
    Path("split/val").rename("split/test")
    assert "measured on val" not in vitinit("plan", halves)[1]


@pytest.mark.parametrize("words", ["plan", "status"])
def test_a_results_folder_that_is_not_there_is_said_but_for_the_default(vitinit, words):
    """A typo would read as lost results; a newcomer has none yet."""
    code, printed, _ = vitinit(words, "smoke", "--results", "nope")
    assert (code, "there is no folder nope yet, so nothing is recorded in it" in printed) == (0, True)
    assert not Path("nope").exists()
    Path("nope").mkdir()
    for more in ([], ["--results", "results/local"], ["--results", "nope"]):
        code, printed, _ = vitinit(words, "smoke", *more)
        assert (code, "there is no folder" in printed) == (0, False)


def test_a_record_that_cannot_be_read_is_neither_renamed_nor_trained_again(recorded, error, vitinit, monkeypatch):
    path, original = Store("results/local").write(recorded), os.open

    def refused(name, *arguments, **more):
        if str(name).endswith(path.name):
            raise PermissionError(13, "Permission denied", str(name))
        return original(name, *arguments, **more)

    monkeypatch.setattr(os, "open", refused)
    assert path.name in error("run", write(Path("tiny.yaml"), TINY))
    with pytest.raises(Exception, match="Permission denied"):
        Store("results/local").write(recorded)
    monkeypatch.setattr(os, "open", original)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert vitinit("status", "tiny.yaml")[0] == 0


@pytest.mark.parametrize("module", ["vitinit.runners.cli", "vitinit.analysis.tables"])
def test_a_deleted_working_folder_is_one_line(module):
    Path("gone").mkdir()
    code = "import sys, os, runpy; os.chdir('gone'); os.rmdir('../gone'); sys.argv = ['x', '--help']\n"
    code += f"runpy.run_module({module!r}, run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr.count("\n"), "deleted" in done.stderr) == (2, 1, True), done.stderr


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_an_output_that_is_full_or_closed_is_no_traceback():
    program, env = [sys.executable, "-m", "vitinit.runners.cli", "list"], {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*program, "recipes"], env=env, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "error: cannot write: No space left on device\n")
    for words, code in (("recipes", 0), ("nope", 2)):  # as by `>&-`
        closed = {"stderr": subprocess.PIPE, "text": True, "preexec_fn": lambda: os.close(1)}
        done = subprocess.run([*program, words], env=env, **closed)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_on_windows_it_says_where_it_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert capsys.readouterr().err == "error: the benchmark runs on Linux and macOS; on Windows in WSL\n"
