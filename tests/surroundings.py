"""The environment of tests: the same one on every machine, whatever a user has exported or configured."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "FAULTS", "PYTEST_VERSION")
"""Variables that reach tests: without the first three some Pythons do not start."""
ALSO_KEPT = "TESTS_KEEP"
"""Variable with the names of others, for tests on another machine than this one: `.ci/hostile` sets it."""
FOLDER = "TESTS_FOLDER"
"""Variable with the folder of home and the like, of a process whose environment is set aside already."""
LEFT_OUT = "TESTS_LEFT_OUT"
"""Variable with PYTHONPATH as it was: pytest-xdist hands its folders on."""
PROGRAMS = (
    "bash cat chmod cp cut find git grep head ls mkdir mv rm sed sh sha256sum sort tail touch tr truncate uname wc"
)
"""Programs of transcripts, beside ours: a machine that has SLURM prints the same."""
GIT = "[user]\nname = A\nemail = a@example.org\n[safe]\ndirectory = *\n"


@contextmanager
def set_aside():
    """Give this process and its children their own environment, home and temporary folder, and remove them after it.

    To be entered before anything of ours is imported, or a library that reads its configuration at import.
    """
    theirs = os.environ.get(LEFT_OUT) or os.environ.get("PYTHONPATH", "")
    paths = {str(Path(path).absolute()) for path in theirs.split(os.pathsep) if path} - {str(ROOT)}
    sys.path[:] = [path for path in sys.path if path not in paths]
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # the library readline sets them, for children of the process that loads it
    if FOLDER in os.environ:
        yield Path(os.environ[FOLDER])
        return
    also = os.environ.get(ALSO_KEPT, "").split()
    kept = {name: os.environ[name] for name in os.environ if name in (*KEPT, *also)}
    # not in TMPDIR: the length of a path decides where lines are folded, and if it can be a socket's
    name = tempfile.mkdtemp(prefix="vitinit-", dir="/tmp")
    folder = Path(name)
    try:
        for new in ("home", "tmp", "bin"):
            (folder / new).mkdir()
        (folder / "home/.gitconfig").write_text(GIT)
        for program in PROGRAMS.split():
            if path := shutil.which(program):
                (folder / "bin" / program).symlink_to(path)
        os.environ.clear()
        os.environ |= {"LANG": "C.UTF-8", "TZ": "UTC", "MPLBACKEND": "agg", "GIT_CONFIG_NOSYSTEM": "1", **kept}
        os.environ |= {FOLDER: name, LEFT_OUT: theirs, "HOME": f"{name}/home", "XDG_CACHE_HOME": f"{name}/home/.cache"}
        os.environ["TMPDIR"] = f"{name}/tmp"
        tempfile.tempdir = None
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def programs():
    """Return a PATH with our programs and `PROGRAMS` alone."""
    return f"{BIN}:{os.environ[FOLDER]}/bin"


def other_installation():
    """Return a complaint where the installed vitinit, which scripts start, is not the one here."""
    where = [sys.executable, "-c", "import vitinit; print(vitinit.__file__)"]
    installed = subprocess.run(where, cwd="/", capture_output=True, text=True).stdout.strip()
    return "" if installed == str(ROOT / "vitinit/__init__.py") else f"{BIN}/vitinit is that of {installed}: make setup"
