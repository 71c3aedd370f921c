"""Transcripts of the command line: `python -m tests.golden.cli` compares them, `--write` makes them anew.

A file of `tests/golden/cli/` is what a terminal of 80 columns would show: each line that begins with `$ ` is run, and
what it prints and its exit code follow. To add one, write its commands alone and call `--write`. Each transcript has a
folder of its own, with `files/` in it and the committed records at `results/reference`.
"""

import difflib
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

from tests.surroundings import BIN, FOLDER, ROOT, programs, set_aside
from vitinit.runners.basics import environment

TRANSCRIPTS = Path(__file__).with_name("cli")
INSIDE = "from tests.golden.cli import main; main()"
"""Code of a process in the environment of tests: `python -m` would have its own name in each usage line."""


def call(line: str, out: io.StringIO, err: io.StringIO) -> int:
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


def answer(command: str) -> str:
    """Return the output of a command, and its exit code: ours runs in this process, up to a pipe, others in a shell."""
    if not command.startswith(("vitinit", "python -m")):
        return shell(command)
    ours, _, pipe = command.partition(" | ")
    printed = io.StringIO()
    code = call(ours, printed, printed)
    return shell(f"{pipe or 'cat'}; exit {code}", printed.getvalue())


def shell(command: str, given: str = "") -> str:
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


def transcript(commands: list[str]) -> str:
    """Return what a terminal shows of them."""
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
    shown = re.sub(r"'((?:HERE|BIN|ROOT)[^' ]*)'", r"\1", shown)  # a path with a space is quoted for the shell
    return re.sub(r"\x1b\[[\d;]*m| +$", "", shown, flags=re.MULTILINE)


def main() -> None:
    """Compare all transcripts, or those named; `--write` makes them anew."""
    environment.CPUINFO = Path("/no/processor")  # no record is of the same one
    write, names = "--write" in sys.argv, [name for name in sys.argv[1:] if name != "--write"]
    differing = False
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        if names and path.stem not in names:
            continue
        before = path.read_text(encoding="utf-8")
        if "/dev/full" in before and not Path("/dev/full").exists():
            print(f"skipped, {path.stem}: no /dev/full here")
            continue
        now = transcript([line[2:] for line in before.splitlines() if line.startswith("$ ")])
        differing |= now != before
        if write:
            path.write_text(now, encoding="utf-8")
        else:
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), now.splitlines(True), path.name, "now"))
    sys.exit(differing and not write)


if __name__ == "__main__":
    with set_aside():
        settings = {"PATH": programs(), "COLUMNS": "80", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([sys.executable, "-c", INSIDE, *sys.argv[1:]], cwd=ROOT, env={**os.environ, **settings})
    sys.exit(done.returncode)
