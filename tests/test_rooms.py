"""The rooms of each floor: a room imports from the rooms below it only, and nothing imports in a circle.

An import counts wherever it stands: at the top of a file, inside a function, or for type checking alone.
"""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the ground up, a storey a line. A room is a folder, or a file that lies beside the folders. Rooms of one storey
# know nothing of one another.
STOREYS = {
    "initializers": (
        "errors report targets pseudo_input threads streams",
        "plugins",
        "adapter",
        "adapters",
        "attention",
        "registry diagnostics",
        "whole_model apply",
        "initialize bases methods",
    ),
    "slurm": ("errors torchrun", "command profiles", "jobs", "task", "submit", "check"),
    "benchmark": (
        "fields files",
        "models",
        "spec speed",
        "records image_files settings",
        "datasets",
        "grids preparing",
    ),
    "runners": (
        "basics",
        "augmentation terminal",
        "loaders",
        "training probes",
        "one_run measuring",
        "launching",
        "cli",
    ),
    "analysis": (
        "text command stats registry series",
        "frame published unread",
        "tables",
        "plotting",
        "figures standing choose",
        "curves",
        "report",
    ),
}
MOST_FILES = 15
"""In one folder, so that a newcomer can look it over."""
MOST_LINES = 400
"""In one file."""

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in STOREYS
    for path in (ROOT / package).rglob("*.py")
}


def imported(name: str) -> set[str]:
    """The modules of ours that one imports."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & MODULES.keys() or {str(node.module)}
    return found & MODULES.keys() - {name}


def room(module: str) -> str:
    """The room that a module lies in; empty for the package itself."""
    return ".".join(module.split(".")[1:2])


def test_nothing_imports_in_a_circle():
    graph = {name: imported(name) for name in MODULES}
    assert sum(map(len, graph.values())) > 2 * len(MODULES), "imports are found"
    TopologicalSorter(graph).prepare()  # a CycleError names the modules


@pytest.mark.parametrize("package", STOREYS)
def test_every_room_has_its_storey(package):
    rooms = {room(name) for name in MODULES if name.startswith(f"{package}.")}
    assert sorted(" ".join(STOREYS[package]).split()) == sorted(rooms)


@pytest.mark.parametrize("package", STOREYS)
def test_a_room_imports_from_below(package):
    storey = {name: height for height, names in enumerate(STOREYS[package]) for name in names.split()}
    arrows = [
        f"{name} imports {other}"
        for name in MODULES
        if name.startswith(f"{package}.")
        for other in imported(name)
        if other.startswith(f"{package}.") and room(other) != room(name) and storey[room(other)] >= storey[room(name)]
    ]
    assert not arrows, "these run up or sideways"


def test_rooms_and_files_can_be_looked_over():
    crowded = {}
    for package in (*STOREYS, "tests"):
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
            crowded[folder] = len(list(folder.glob("*.py")))
    tests = ROOT / "tests"
    assert {str(f): n for f, n in crowded.items() if n > MOST_FILES and tests not in (f, *f.parents)} == {}
    files = [*MODULES.values(), *tests.rglob("*.py")]
    lines = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}
