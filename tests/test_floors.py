"""The floors of the house: a package imports from the ones below it only, and analysis never loads torch."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import fresh

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "initializers": {"initializers"},
    "slurm": {"slurm"},
    "benchmark": {"benchmark", "initializers"},
    "runners": {"runners", "benchmark", "initializers", "slurm"},
    "analysis": {"analysis", "benchmark", "initializers"},
    "vitinit.py": {"initializers"},
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_down_only(package):
    files = [ROOT / package] if package.endswith(".py") else list((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        ours = {name.partition(".")[0] for name in imported(path)} & set(MAY_IMPORT)
        assert ours <= MAY_IMPORT[package], path


def test_analysis_reads_records_only():
    records = {
        "benchmark.records.epoch",
        "benchmark.records.record",
        "benchmark.records.store",
        "benchmark.fields",
        "benchmark.models.registry",
        "benchmark.spec",
        "benchmark.records.maps",
        "benchmark.settings",
        "benchmark.files.yaml_text",
    }
    allowed = records | {"initializers.errors", "initializers.report"}
    for path in (ROOT / "analysis").rglob("*.py"):
        lower = {name for name in imported(path) if name.partition(".")[0] in ("benchmark", "initializers")}
        assert lower <= allowed, path


def test_initializers_import_torch_and_pydantic_only():
    known = set(sys.stdlib_module_names) | {"torch", "pydantic", "initializers"}
    for path in (ROOT / "initializers").rglob("*.py"):
        assert {name.partition(".")[0] for name in imported(path)} <= known, path


def test_slurm_knows_nothing_of_the_benchmark():
    known = set(sys.stdlib_module_names) | {"pydantic", "yaml", "submitit", "slurm"}
    words = re.compile(r"\b(run_?id|runs? ids?|grid|study|studies|initiali[sz]er|dataset|seed|vit)\b", re.IGNORECASE)
    for path in (ROOT / "slurm").rglob("*.py"):
        assert {name.partition(".")[0] for name in imported(path)} <= known, path
        assert not words.findall(path.read_text(encoding="utf-8")), path


TORCHLESS = (
    "analysis.tables.__main__",
    "analysis.figures.__main__",
    "analysis.curves.__main__",
    "analysis.report.__main__",
    "analysis.choose",
    "benchmark.grids.grid",
    "benchmark.records.store",
    "runners.one_run.claims",
    "runners.cli.main",
    "runners.launching.plan",
    "slurm.check",
    "vitinit",
)


def test_the_public_module_brings_no_other_floor_and_has_the_version_of_the_distribution():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    code = "import sys, vitinit; print(vitinit.__version__, *sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found, *modules = done.stdout.split()
    assert version
    assert found == version[1]
    assert set(modules) & {*MAY_IMPORT, "timm", "torchvision", "transformers", "lightning"} == {"initializers"}


@pytest.mark.parametrize("module", TORCHLESS)
def test_no_torch_before_it_is_needed(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    "arguments", [("plan", "smoke"), ("status", "smoke"), ("plan", "table2", "--seeds", "0-3", "--device", "cpu")]
)
def test_a_grid_that_was_resolved_before_is_planned_without_torch(arguments, here, monkeypatch, tmp_path):
    code = "import sys, atexit, runners.cli.main as c; atexit.register(lambda: print('torch' in sys.modules)); c.main()"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert here(*arguments)[0] == 0
    assert list(tmp_path.glob("cache/vitinit/fits/*")), "asked, with torch"
    command = [sys.executable, "-c", code, *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"


def test_initialisers_are_listed_without_torch_from_the_second_time_on(tmp_path):
    """Not so where another package has some: a change of theirs would not be seen."""
    script = """
import sys, runners.cli.main
sys.dont_write_bytecode = True
sys.argv[1:] = ["list", "initializers"]
try:
    runners.cli.main.main()
finally:
    print("initializers.registry" in sys.modules)  # it imports torch
"""
    first, second = (fresh("-c", script, cwd=tmp_path, VITINIT_CACHE=str(tmp_path / "cache")) for _ in range(2))
    assert first.stdout.splitlines()[-1] == "True", first.stderr
    assert second.stdout.splitlines() == [*first.stdout.splitlines()[:-1], "False"]
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vitinit.initializers]\ntheirs = their_module:Theirs\n")
    for said in ("First.", "Second."):
        code = (
            f'from initializers.methods.mimetic import Mimetic\nclass Theirs(Mimetic):\n    """{said}"""\n'
            "    name = 'theirs'\n"
        )
        (tmp_path / "their_module.py").write_text(code)
        listed = fresh("-c", script, cwd=tmp_path, path=(tmp_path, ROOT), VITINIT_CACHE=str(tmp_path / "cache")).stdout
        assert f"theirs (method): {said}" in listed
