"""The wheel: what it needs, and that `vitinit.initialize` does without the rest."""

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel
ROOT = Path(__file__).parents[1]
FLOORS = ("analysis", "benchmark", "initializers", "runners", "slurm")
OTHERS = "torchvision timm numpy PIL yaml sklearn scipy pandas matplotlib typer rich transformers lightning setuptools"
"""Packages that the benchmark or a test needs, by the names that are imported."""
SCRIPT = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OTHERS!r}.split():
            raise ModuleNotFoundError(name, name=name)

def ours():
    names = [name.split(".")[:2] for name in sys.modules]
    return sorted({{".".join(name) for name in names if name[0] in {{*{FLOORS}, "vitinit"}}}})

sys.meta_path.insert(0, Blocked())
import vitinit
print(vitinit.__file__)
print("torch" in sys.modules, *ours())
from torch import nn
layer = nn.TransformerEncoderLayer(24, 2, 48, batch_first=True)
model = nn.ModuleDict({{"encoder": nn.TransformerEncoder(layer, 2), "head": nn.Linear(24, 3)}})
print(*(change.name for change in vitinit.initialize(model, "mimetic", base="trunc_normal").changes))
attention = model["encoder"].layers[1].self_attn
print(float((attention.out_proj.weight @ attention.in_proj_weight[48:]).diagonal().mean()))
print(*ours())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the wheel alone, built and installed without a network."""
    source, wheels, target = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "target"))
    for name in (*FLOORS, "vitinit"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(wheels)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, *map(str, wheels.iterdir())], check=True, capture_output=True)
    return target


def started(*arguments, target, cwd):
    """Run Python with the wheel, and with what lies in the working folder."""
    env = {**os.environ, "PYTHONPATH": f"{target}{os.pathsep}{cwd}", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)


def test_it_needs_torch_and_pydantic_and_no_more(installed):
    (info,) = importlib.metadata.distributions(path=[str(installed)])
    needed = {re.split(r"[^\w-]", line)[0] for line in info.requires or () if "extra ==" not in line}
    assert needed == {"torch", "pydantic"}
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} == {"vitinit", "bin"}


def test_it_initialises_where_nothing_else_is(installed, tmp_path):
    done = started("-c", SCRIPT, target=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    where, first, changed, diagonal, last = done.stdout.splitlines()
    assert Path(where) == installed / "vitinit" / "__init__.py"
    assert first == "False vitinit"
    assert last == "vitinit vitinit.initializers", "no floor above"
    assert {"head.weight", "head.bias", "encoder.layers.0.self_attn.in_proj_weight"} <= set(changed.split())
    assert float(diagonal) == pytest.approx(-0.4, abs=5 * 0.4 / 24)


@pytest.fixture
def bare(tmp_path):
    """A working folder with pydantic, which all of the wheel needs; `-S` hides every other package."""
    for name in ("pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"):
        path = Path(str(importlib.import_module(name).__file__))
        path = path.parent if path.name == "__init__.py" else path
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def test_the_command_says_in_one_line_what_the_benchmark_needs(installed, bare):
    done = started("-S", "-m", "vitinit.runners.cli", "list", "grids", target=installed, cwd=bare)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "in a clone, pip install '.[benchmark]'" in line
    (info,) = importlib.metadata.distributions(path=[str(installed)])
    (command,) = info.entry_points
    assert command.value == "vitinit.runners.cli.__main__:main", "what `-m runners.cli` starts"


def test_analysis_says_in_one_line_what_it_needs(installed, bare):
    for command in ("tables", "figures", "curves", "report", "choose", "standing"):
        done = started("-S", "-m", f"vitinit.analysis.{command}", target=installed, cwd=bare)
        assert (done.returncode, done.stdout) == (2, ""), command
        (line,) = done.stderr.splitlines()
        assert re.match(r"error: analysis needs .*\bpandas\b.*: source .venv/bin/activate, or pip install ", line)
