"""Reading runs nothing, writes nothing outside of its study, opens no connection, loads no code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.analysis.synthetic_records import several
from vitinit.benchmark.records.store import Layout, Store

WATCHED = """
import os, sys, tempfile
import matplotlib.pyplot, scipy.stats  # libraries have their own caches
from vitinit.analysis import report
from vitinit.analysis.curves import __main__ as curves
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.pages import __main__ as pages
from vitinit.analysis.tables import __main__ as tables
from vitinit.runners.cli import __main__ as cli

tempfile.gettempdir()
allowed = tuple(os.path.realpath(name) for name in ("results/local", os.environ["XDG_CACHE_HOME"]))
PATHS = {"open": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1,
         "os.chmod": 1, "os.truncate": 1}
FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "os.system", "os.exec", "os.fork", "subprocess.Popen")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

def watch(event, arguments):
    if event in FORBIDDEN:
        print("WATCHED", event, arguments, flush=True)
    if event == "open" and not (arguments[2] or 0) & WRITES:
        return
    for path in arguments[:PATHS.get(event, 0)]:
        if not isinstance(path, int) and path != os.devnull:
            folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
            if not os.path.join(os.path.realpath(folder), name).startswith(allowed):
                print("WATCHED", event, path, flush=True)

sys.dont_write_bytecode = True
sys.addaudithook(watch)
for module in (tables, figures, curves, report, pages):
    print(module.__name__, module.main(["--results", "results/local", "--study", "small"]))
for command in ("store check", f"show {sys.argv[1]}", "status smoke", "plan pipe.yaml"):
    sys.argv = ["vitinit", *command.split()]
    try:
        cli.main()
    except SystemExit as stop:
        print(command, stop.code)
print("of links", tables.main([]))
"""
EVIL = """{% extends "study.md.j2" %}{% block answer %}
{{ facts.study.folders[0].joinpath("../../executed").write_text("x") }}{% endblock %}"""
ODD = "=cmd|' /C calc'!A0 <script>alert(1)</script>\x1b]0;owned\x07\u202e"


def test_a_folder_of_somebody_else_is_read_and_does_nothing(tmp_path, vitinit):
    root, outside = tmp_path / "results/local", tmp_path / "precious"
    several(root, {"Kaiming uniform": [40.0, 41.0, 42.0]})
    several(root, {"Mimetic": [45.0, 46.1, 46.9]}, label=ODD, environment={"commit": "<script src", "dirty": False})
    Store(root).write_layout("small", Layout(title="<script>alert(2)</script>"))
    study, run = root / "small", next((root / "small").glob("*.json")).stem
    outside.write_text("mine")
    for template in (study / "page.md.j2", root / "study.md.j2", root / "macros.md.j2", root / "which.md.j2"):
        template.write_text(EVIL)
    (study / "tables").mkdir()
    for link in (study / "report.html", study / "README.md", study / "tables/small.tex"):
        link.symlink_to(outside)
    os.mkfifo(study / ("0" * 16 + ".json"))
    (study / ("1" * 16 + ".json")).symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.json").write_text("{}")
    (root / "everything").symlink_to(tmp_path / "elsewhere")
    vitinit("plan smoke")  # what takes torch, which has caches too, is kept
    python = [sys.executable, "-c", WATCHED, run]
    done = subprocess.run(python, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    print(done.stdout, done.stderr)
    assert {"plan pipe.yaml 2", "of links 2"} <= {*done.stdout.splitlines()}
    assert done.stderr.endswith("error: results/local/everything is a link: remove it, or write elsewhere with --out\n")
    assert "WATCHED" not in done.stdout
    assert outside.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"results", "elsewhere", "precious", "pipe.yaml"}
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["a.json"]
    for name in ("report.html", "README.md", "tables/small.tex"):
        text = (study / name).read_text()
        assert not {"\x1b", "\x07", "\u202e"} & {*text}
        shown = MarkdownIt().enable("table").render(text) if name.endswith(".md") else text
        assert "<script>alert" not in shown
    assert "'=cmd|" in (study / "figures/differences.csv").read_text()


# --- files that are loaded ---


ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("package", ["analysis", "benchmark", "initializers", "runners", "slurm", "vitinit"])
def test_no_file_that_is_loaded_can_run_code(package):
    """The defaults of torch.load and np.load are safe; ruff watches pickle and the like."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / package).glob("**/*.py"))
    assert "import" in code
    assert not re.search("weights_only=False|allow_pickle=True", code)
