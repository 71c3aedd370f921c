"""The floors of the house and their rooms: imports go down only and never in a circle; what loads torch and when.

An import counts wherever it stands: at the top of a file, inside a function, or for type checking alone.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from tests.processes import in_turn
from vitinit import analysis

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "initializers": {"initializers"},
    "slurm": {"slurm"},
    "benchmark": {"benchmark", "initializers"},
    "runners": {"runners", "benchmark", "initializers", "slurm"},
    "analysis": {"analysis", "benchmark", "initializers"},
    "vitinit": {"initializers", "benchmark", "runners", "analysis", "vitinit"},
}
# From the ground up, a storey a line. A room is a folder, or a file that lies beside the folders. Rooms of one storey
# know nothing of one another.
STOREYS = {
    "initializers": (
        "errors report targets pseudo_input threads streams",
        "foreign",
        "plugins",
        "adapter own_files",
        "adapters",
        "attention sharing",
        "registry diagnostics",
        "whole_model apply",
        "initialize bases methods check",
    ),
    "slurm": ("errors", "command profiles", "jobs", "task", "submit", "check"),
    "benchmark": (
        "fields files metrics signatures",
        "models schedules",
        "spec terminal",
        "records image_files settings optimizers augmentations",
        "datasets",
        "grids preparing",
    ),
    "runners": (
        "basics",
        "augmentation terminal",
        "loaders",
        "training probes tracking",
        "one_run measuring",
        "launching",
        "submissions",
        "cli",
    ),
    "analysis": (
        "text command stats registry series",
        "frame published unread",
        "tables",
        "plotting",
        "figures standing choose board",
        "curves",
        "report pages",
    ),
}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in [ROOT / "vitinit/__init__.py", *(path for name in STOREYS for path in (ROOT / name).rglob("*.py"))]
}


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules that a file imports, and what it imports from them, with dots; ours as their folders are called."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("vitinit.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            inside = {f"{node.module}.{alias.name}".removeprefix("vitinit.") for alias in node.names}
            names |= inside & MODULES.keys() or {str(node.module).removeprefix("vitinit.")}
    return frozenset(names)


def tops(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


def below(package: str) -> list[str]:
    return [name for name in MODULES if name.partition(".")[0] == package]


def room(module: str) -> str:
    """The room that a module lies in; empty for the package itself."""
    return ".".join(module.split(".")[1:2])


def test_imports_go_down_only() -> None:
    for package, allowed in MAY_IMPORT.items():
        for name in below(package):
            assert tops(MODULES[name]) & MAY_IMPORT.keys() <= allowed, name


def test_nothing_imports_in_a_circle() -> None:
    graph = {name: imported(path) & MODULES.keys() - {name} for name, path in MODULES.items()}
    assert sum(map(len, graph.values())) > 2 * len(MODULES), "imports are found"
    TopologicalSorter(graph).prepare()  # a CycleError names the modules


def test_every_room_has_its_storey_and_imports_from_below() -> None:
    for package, storeys in STOREYS.items():
        storey = {name: height for height, names in enumerate(storeys) for name in names.split()}
        assert sorted(" ".join(storeys).split()) == sorted({room(name) for name in below(package)} - {""}), package
        arrows = [
            f"{name} imports {other}"
            for name in below(package)
            for other in imported(MODULES[name]) & {*below(package)}
            if "" != room(name) != room(other) != "" and storey[room(other)] >= storey[room(name)]
        ]
        assert not arrows, "these run up or sideways"


def test_analysis_reads_records_only() -> None:
    records = {
        "benchmark.records.epoch",
        "benchmark.records.record",
        "benchmark.records.looks",
        "benchmark.records.store",
        "benchmark.fields",
        "benchmark.metrics.registry",
        "benchmark.models.registry",
        "benchmark.spec",
        "benchmark.records.maps",
        "benchmark.settings",
        "benchmark.files.yaml_text",
        "benchmark.terminal",
    }
    allowed = records | {"initializers.errors", "initializers.plugins", "initializers.report"}
    for name in below("analysis"):
        lower = {other for other in imported(MODULES[name]) if other.partition(".")[0] in ("benchmark", "initializers")}
        assert lower <= allowed, name


def test_initializers_import_torch_and_pydantic_only() -> None:
    libraries = {"torch", "pydantic", "pydantic_core"}
    for name in below("initializers"):
        assert tops(MODULES[name]) <= {*sys.stdlib_module_names, *libraries, "initializers"}, name


def test_slurm_knows_nothing_of_the_benchmark() -> None:
    words = re.compile(r"\b(run_?id|runs? ids?|grid|study|studies|initiali[sz]er|dataset|seed|vit)\b", re.IGNORECASE)
    for name in below("slurm"):
        assert tops(MODULES[name]) <= {*sys.stdlib_module_names, "pydantic", "yaml", "submitit", "slurm"}, name
        assert not words.findall(MODULES[name].read_text(encoding="utf-8")), name


def test_what_analysis_needs_is_what_it_imports() -> None:
    names = [
        *below("analysis"),
        *(name for name in MODULES if name.startswith(("benchmark.records", "benchmark.files"))),
    ]
    libraries = set().union(*(tops(MODULES[name]) for name in names)) - sys.stdlib_module_names
    come_along = {"analysis", "benchmark", "initializers", "markupsafe", "pydantic_core"}  # with jinja2 and pydantic
    assert (libraries - come_along) | {"bokeh"} == set(analysis.NEEDS)  # of bokeh its JavaScript is read


LIGHT = (
    (
        ("vitinit",),
        "torch timm torchvision transformers lightning vitinit.analysis vitinit.benchmark vitinit.runners",
    ),
    (
        (
            *(f"vitinit.analysis.{name}.__main__" for name in ("tables", "figures", "curves", "report")),
            *("vitinit.analysis.choose", "vitinit.analysis.tables.registry:TABLES"),
            *("vitinit.analysis.figures.registry:FIGURES", "vitinit.analysis.curves.registry:CURVES"),
        ),
        "torch timm pandas scipy matplotlib vitinit.runners",
    ),
    (
        (
            *("vitinit.benchmark.grids.grid", "vitinit.benchmark.records.store", "vitinit.runners.one_run.claims"),
            *("vitinit.runners.cli.main", "vitinit.runners.launching.plan", "vitinit.slurm.check"),
        ),
        "torch",
    ),
)
"""Modules, or registries to be searched, that are imported in this order, and what none of them may bring."""
IMPORT = """
import importlib, json, sys
for names, heavy in json.loads(sys.argv[1]):
    for name in names:
        module, _, registry = name.partition(":")
        found = importlib.import_module(module)
        if registry:
            getattr(found, registry).entries()
        if brought := set(heavy.split()) & sys.modules.keys():
            sys.exit(f"{name} brings {brought}")
from vitinit.runners.basics.environment import code, source_hash
sys.exit(0 if code()["source"] == source_hash() and "torch" not in sys.modules else "code() needs torch")
"""


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    """Of what a login node runs; nor does the public module bring another floor."""
    command = [sys.executable, "-c", IMPORT, json.dumps(LIGHT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


AND_TORCH = """
import json, sys
from vitinit.runners.cli.main import main
for words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
print("torch" in sys.modules)
"""


def test_what_was_asked_of_torch_before_is_not_asked_again(here, monkeypatch, tmp_path: Path) -> None:
    """A grid that was resolved, also under other seeds and by another command; and the initialisers that are listed."""
    monkeypatch.setenv("VITINIT_CACHE", str(tmp_path / "cache"))
    assert here("plan", "smoke")[0] == 0
    listed = here("list", "initializers")[1]
    commands = [
        ["plan", "smoke", "--seeds", "0-3", "--device", "cpu"],
        ["status", "smoke"],
        ["list", "initializers"],
    ]
    command = [sys.executable, "-c", AND_TORCH, json.dumps(commands)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-len(listed.split()) - 1 :] == [*listed.split(), "False"]


def test_initialisers_of_another_package_are_asked_each_time(here, monkeypatch, tmp_path: Path) -> None:
    """A change of theirs would not be seen."""
    monkeypatch.setenv("VITINIT_CACHE", str(tmp_path / "cache"))
    assert here("list", "initializers")[0] == 0
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vitinit.initializers]\ntheirs = their_module:Theirs\n")
    for said in ("First.", "Second."):
        code = (
            f'from vitinit.initializers.methods.mimetic import Mimetic\nclass Theirs(Mimetic):\n    """{said}"""\n'
            "    name = 'theirs'\n"
        )
        (tmp_path / "their_module.py").write_text(code)
        (listed, *_) = in_turn(("list", "initializers"), cwd=tmp_path, path=(tmp_path, ROOT), VITINIT_CACHE="cache")
        assert f"theirs (method): {said}" in listed[1]
