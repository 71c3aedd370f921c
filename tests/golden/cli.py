"""Transcripts of the command line: `python -m tests.golden.cli --write` makes them anew.

A file of `tests/golden/cli/` is what a terminal of 80 columns would show: each line that begins with `$ ` is run, and
what it prints and its exit code follow. To add one, write its commands alone and call `--write`. Each transcript has a
folder of its own, with `files/` in it and the committed records at `results/reference`.
"""

import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points, version
from pathlib import Path
from unittest.mock import patch

from tests.surroundings import BIN, FOLDER, ROOT, programs, set_aside
from vitinit.runners.basics import environment

TRANSCRIPTS = Path(__file__).with_name("cli")
INSIDE = "from tests.golden.cli import main; main()"
"""Code of a process in the environment of tests: `python -m` would have its own name in each usage line."""
NO_PROCESSOR = Path("/no/processor")
"""File that describes the processor: no record is of the same one."""


def settings():
    """Return the variables of a transcript."""
    return {"PATH": programs(), "COLUMNS": "80", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def call(line, out, err):
    """Run a command of ours in this process; return its exit code."""
    words = shlex.split(line)
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # runpy's, of a module that was imported before
        try:
            if words[0] == "vitinit":
                sys.argv = words
                (entry,) = entry_points(group="console_scripts", name="vitinit")
                entry.load()()
            else:
                sys.argv = words[2:]
                runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


def answer(command):
    """Return the output of a command, and its exit code: ours runs in this process, up to a pipe, others in a shell."""
    assigned, line = re.fullmatch(r"((?:[A-Z_]+=\S+ )*)(.*)", command).groups()  # type: ignore[union-attr]
    if not line.startswith(("vitinit", "python -m")) or ">" in line:
        return shell(command)
    places = {"$PWD": str(Path.cwd()), "$PATH": os.environ["PATH"]}
    given = dict(assignment.split("=", 1) for assignment in assigned.split())  # before places with spaces stand in it
    given = {key: re.sub(r"\$PWD|\$PATH", lambda name: places[name[0]], value) for key, value in given.items()}
    ours, _, pipe = line.partition(" | ")
    printed = io.StringIO()
    with patch.dict(os.environ, given):
        code = call(ours, printed, printed)
    return shell(f"{pipe or 'cat'}; exit {code}", printed.getvalue())


def shell(command, given=""):
    """Return the output of a shell, and its exit code."""
    done = subprocess.run(
        command.encode(),
        shell=True,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        env={**os.environ, "LC_ALL": "C.UTF-8"},  # `sort` follows the locale
    )
    return f"{done.stdout}exit {done.returncode}\n"


def transcript(before):
    """Return what a terminal shows now of the commands of a transcript."""
    commands = [line[2:] for line in before.splitlines() if line.startswith("$ ")]
    with tempfile.TemporaryDirectory(dir=os.environ[FOLDER]) as name:  # lines are folded by the length of a path
        folder = Path(name)
        shutil.copytree(TRANSCRIPTS / "files", folder, dirs_exist_ok=True)
        (folder / "results").mkdir()
        (folder / "results/reference").symlink_to(ROOT / "results/reference")
        os.chdir(folder)
        shown = "".join(f"$ {command}\n{answer(command)}" for command in commands)
        os.chdir(ROOT)
    places = {name: "HERE", str(BIN): "BIN", str(ROOT): "ROOT", version("vitinit"): "VERSION"}
    for here, placeholder in places.items():
        shown = shown.replace(shlex.quote(here), placeholder).replace(here, placeholder)
    # a path with a space is quoted for the shell, once or within quotes
    shown = re.sub(r"""(?:'"'")?'((?:HERE|BIN|ROOT)[^' ]*)'(?:"'"')?""", r"\1", shown)
    return re.sub(r"\x1b\[[\d;]*m| +$", "", shown, flags=re.MULTILINE)


def main():
    """Make transcripts anew: those that are named, or all."""
    environment.CPUINFO = NO_PROCESSOR
    _, write, *names = sys.argv
    assert write == "--write", "pytest tests/golden compares"
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        if path.stem in names or not names:
            path.write_text(transcript(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    with set_aside():
        command = [sys.executable, "-c", INSIDE, *sys.argv[1:]]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **settings()})
    sys.exit(done.returncode)
