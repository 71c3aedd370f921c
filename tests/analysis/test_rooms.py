"""The rooms of `analysis` stand one above another: nothing imports in a circle, not even inside a function."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import analysis

FOLDER = Path(analysis.__file__).parent
FILES = {
    ".".join(["analysis", *path.relative_to(FOLDER).with_suffix("").parts]).removesuffix(".__init__"): path
    for path in FOLDER.rglob("*.py")
}
ROOMS = ("tables", "figures", "curves", "report", "choose", "standing")
ABOVE = {"tables": {"figures", "curves", "report"}, "figures": {"curves", "report"}, "curves": {"report"}}
"""What a room must not import; whatever lies beside the rooms imports none of them."""


def imported(path: Path) -> set[str]:
    """Files of `analysis` that this one imports anywhere in it, for type checking too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return (names & FILES.keys()) - {"analysis"}


def test_no_circle():
    graph = {name: imported(path) for name, path in FILES.items()}
    assert sum(map(len, graph.values())) > len(FILES), "imports were found"
    TopologicalSorter(graph).prepare()  # a CycleError names the files


@pytest.mark.parametrize("name", FILES)
def test_a_room_imports_from_below(name):
    room = name.split(".")[1] if "." in name else ""
    above = ABOVE.get(room, set()) if room in ROOMS else set(ROOMS)
    assert not {other for other in imported(FILES[name]) if other.split(".")[1] in above}
