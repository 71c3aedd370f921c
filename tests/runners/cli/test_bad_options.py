"""Options that name what is not there, terminals that lack letters, folders that hold more than images."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

from initializers.errors import VitinitError
from runners.basics.environment import ROOT
from runners.cli import main as cli
from runners.cli import plan as cli_plan

GRID = {
    "title": "初期化: Größe ±",
    "rows": {"初期化 \U0001f680": {"base": "kaiming_uniform"}, "Größe": {"base": "trunc_normal"}},
    "blocks": [
        {
            "datasets": [{"name": "digits", "train_size": 100}],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 2, "depth": 1},
            "recipe": {"name": "small", "epochs": 1},
            "seeds": [0],
        }
    ],
}


@pytest.fixture
def refused(monkeypatch, capsys, tmp_path):
    """Run the command line in tmp_path; return the one line of its error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITINIT_DATA", "nothing")

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["vitinit", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        assert (stop.value.code, printed.err.count("\n"), printed.out) == (2, 1, "")
        return printed.err

    return run


@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_what_is_for_another_executor_is_refused_and_force_names_a_run(refused, tmp_path, more):
    (tmp_path / "other.yaml").write_text("hello: 1\n")
    run = ["run", "smoke", "--executor", "local", *more]
    for option in (("--profile", "other.yaml"), ("--runs-per-job", "3")):
        said = f"{option[0]} is for the executor slurm, and the runs would be carried out by local"
        assert said in refused(*run, *option)
    assert "--workers 5: the executor inline carries out one run" in refused(
        *run, "--executor", "inline", "--workers", "5"
    )
    assert "--force ../x: no run of this grid" in refused(*run, "--force", "../x")
    assert "6 runs of this grid" in refused(*run, "--force", "")


def test_a_dry_run_says_what_force_would_do(here):
    from benchmark.grids import grid

    cell = grid.load("smoke").cells[0]
    code, printed = here("run", "smoke", "--executor", "local", "--dry-run", "--force", cell.run_id)
    assert (code, f"--force: {cell.run_id} would begin anew, Kaiming uniform, digits[200], seed 0" in printed) == (
        0,
        True,
    )


def test_seeds_on_the_command_line_that_cannot_be():
    for seeds, message in (
        ("0-999999999999", "names more than 10,000 seeds"),
        ("0-9999,10000", "names more than 10,000 seeds"),
        ("9" * 5_000, "write 0-4 or 0,2,7"),
        ("0-3,2", "seed 2 is there twice"),
        ("-1", "write 0-4 or 0,2,7"),
        ("true", "write 0-4 or 0,2,7"),
        ("", "write 0-4 or 0,2,7"),
        ("0-", "write 0-4 or 0,2,7"),
        ("1-x", "1-x"),
        ("3-1", "names no seed"),
        ("0-0,3-1", "names no seed"),
    ):
        with pytest.raises(VitinitError, match=message):
            cli_plan._seeds(seeds)


def test_what_a_terminal_lacks_is_a_question_mark(tmp_path):
    path = tmp_path / "letters.yaml"
    path.write_text(yaml.safe_dump(GRID, allow_unicode=True), encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONPATH": str(ROOT), "VITINIT_DATA": "nothing"}
    program = [sys.executable, "-m", "runners.cli", "plan", path.name]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    printed = done.stdout.decode("latin-1")
    assert "??? ?" in printed
    assert "Größe" in printed


def test_what_is_no_image_of_a_folder_is_counted_by_kind(here, tmp_path: Path):
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name / "more").mkdir(parents=True)
        for number in range(10):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "pets" / name / f"{number}.png")
        for ending in (".gif", ".GIF", ".heic", ""):
            (tmp_path / "pets" / name / f"x{ending}").write_bytes(b"x")
        (tmp_path / "pets" / name / ".hidden.gif").write_bytes(b"x")
    (tmp_path / "pets" / "loose.png").write_bytes(b"x")
    content = {**GRID, "blocks": [{**GRID["blocks"][0], "datasets": ["folder:pets"]}]}
    (tmp_path / "pets.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    code, printed = here("plan", "pets.yaml")
    assert code == 0
    line = next(line for line in printed.splitlines() if line.startswith("folder:pets: "))
    assert "folder:pets: 11 left out: 4 .gif, 2 .heic, 2 folder, 2 no extension, 1 .png outside of a class" in line
    assert "images are .jpg, .jpeg, .png" in line


def test_a_file_where_a_folder_is_to_be(refused, tmp_path):
    (tmp_path / "file").write_text("")
    for words in (("plan", "smoke", "--results"), ("plan", "smoke", "--data-dir"), ("proposition", "--data-dir")):
        assert "file is a file, and a folder is needed" in refused(*words, "file")


def test_more_threads_than_a_machine_has_are_refused(vitinit):
    for words in (["speed"], ["reproduce", "0"]):
        code, _, error = vitinit(*words, "--threads", "9" * 30)
        assert (code, "4096" in error) == (2, True)


@pytest.mark.parametrize("command", ["plan", "status"])
def test_a_results_folder_that_is_not_there_is_said_but_for_the_default(here, command):
    """A typo would read as lost results; a newcomer has none yet."""
    said = "there is no folder nope yet, so nothing is recorded in it"
    code, printed = here(command, "smoke", "--results", "nope")
    assert (code, said in printed) == (0, True)
    assert not Path("nope").exists()
    Path("nope").mkdir()
    for words in ([], ["--results", "results/local"], ["--results", "nope"]):
        code, printed = here(command, "smoke", *words)
        assert (code, "there is no folder" in printed) == (0, False)
