"""What base and method make of a model is asked once, and what is kept never changes what a grid means."""

from __future__ import annotations

import importlib.metadata
import textwrap
from pathlib import Path

import pytest
import yaml
from two_rows import GRID

from tests.processes import ROOT, fresh
from vitinit.benchmark.files import kept
from vitinit.benchmark.grids import fitting, grid
from vitinit.benchmark.models import registry as models
from vitinit.initializers import registry


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder of this test's own; its name is not that of the folder inside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vitinit" / fitting.KIND


@pytest.fixture
def file(tmp_path) -> Path:
    return write(tmp_path / "two.yaml", GRID)


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """Grows by one whenever a model is asked rather than an answer taken from the cache."""
    calls: list[int] = []

    def counted(*arguments):
        calls.append(1)
        return original(*arguments)

    original = fitting.misfit
    monkeypatch.setattr(fitting, "misfit", counted)
    return calls


def write(path: Path, content: object) -> Path:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def test_a_grid_from_the_cache_is_the_grid(file, asked, cache):
    name = str(file)
    first = grid.load(name)
    questions = len(asked)
    assert len(list(cache.iterdir())) == questions > 0
    second = grid.load(name)
    assert first == second
    assert [cell.run_id for cell in first.cells] == [cell.spec.run_id for cell in second.cells]
    assert len(asked) == questions


def test_whatever_else_a_grid_has_the_same_rows_of_the_same_model_are_asked_once(file, tmp_path, asked):
    grid.load(str(file))
    assert len(asked) == 2
    block = {**GRID["blocks"][0], "datasets": ["svhn"], "recipe": "standard", "seeds": [5]}
    cells = grid.load(str(write(tmp_path / "other.yaml", {**GRID, "blocks": [block]}))).cells
    assert [(cell.spec.dataset.name, cell.spec.recipe.name, cell.spec.seed) for cell in cells] == [
        ("svhn", "standard", 5)
    ] * 2
    assert len(asked) == 2


def test_whatever_an_answer_depends_on_makes_another_key(file, monkeypatch, asked, tmp_path):
    """One change after the other; none of them may find what was kept before."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "method.py").write_text("gain = 0.5\n")
    monkeypatch.setattr(fitting, "CODE", (*fitting.CODE, code))
    real = importlib.metadata.version

    def rows(base: str = "kaiming_uniform", **impulse: object) -> None:
        method = {"name": "impulse", "kernel_size": 3, **impulse}
        write(file, {**GRID, "rows": {"Imp.-3": {"base": base, "method": method}}})

    def model(**fields: object) -> None:
        content = yaml.safe_load(file.read_text())
        content["blocks"][0]["model"] |= fields
        write(file, content)

    changes = [
        lambda: rows(),
        lambda: rows(kernel_size=5),
        lambda: rows("trunc_normal", kernel_size=5),
        lambda: model(depth=2),
        lambda: model(heads=2),
        lambda: (code / "method.py").write_text("gain = 0.6\n"),
        lambda: (code / "recipe.yaml").write_text("lr: 1\n"),
        lambda: (code / "recipe.yaml").rename(code / "other.yaml"),
        lambda: monkeypatch.setattr(kept, "version", lambda name: real(name) + ".1" * (name == "timm")),
        lambda: monkeypatch.setattr(kept.platform, "python_version", lambda: "3.99.0"),
    ]
    for number, change in enumerate(changes, 1):
        change()
        kept._version.cache_clear()  # as a process that begins now
        for _ in range(2):
            grid.load(str(file))
        assert len(asked) == number


def test_all_code_that_answers_is_in_the_key():
    """One family is asked with every base and method, each other with one that it has and one that it has not.

    Then no module of ours may lie elsewhere.
    """
    questions = [
        *(("vit", base, None) for base in registry.names("base")),
        *(("vit", "trunc_normal", method) for method in registry.names("method")),
        *((arch, "trunc_normal", method) for arch in models.described() for method in (None, "impulse", "placebo")),
    ]
    script = f"""
import sys
from pathlib import Path
from vitinit.benchmark.grids import fitting
from vitinit.benchmark.models import registry as models
from vitinit.initializers.errors import VitinitError
presets = {{fields["arch"]: fields for fields in reversed(models.presets().values())}}
answered = 0
for arch, base, method in {questions!r}:
    model = models.spec_of({{**presets[arch], "image_size": 32, "patch_size": 4}})
    method = method and ({{"name": method, "of": "mimetic"}} if method == "placebo" else {{"name": method}})
    fitting.fit(model, {{"name": base}}, method)
    answered += 1
own = [Path(m.__file__) for n, m in list(sys.modules.items())
       if n.partition(".")[0] == "vitinit" and n != "vitinit" and getattr(m, "__file__", None)]
known = lambda path: any(path == root or root in path.parents for root in fitting.CODE)
print(answered, sorted(str(path) for path in own if not known(path) and path.name != "__init__.py"))
"""
    done = fresh("-c", script, cwd=ROOT, path=(ROOT,))
    files, grids = ROOT / "vitinit/benchmark/files", ROOT / "benchmark/grids"
    assert len(questions) > 20
    keeping = [str(files / name) for name in ("atomic.py", "kept.py")]
    assert done.stdout == f"{len(questions)} {keeping}\n", done.stderr
    assert not (grids / "__init__.py").read_text().count("import")


def test_a_damaged_file_is_asked_anew(file, cache, asked):
    expected = grid.load(str(file))
    paths = {path: path.read_bytes() for path in cache.iterdir()}
    path = next(path for path in paths if b"impulse" in paths[path])
    whole, before = paths[path], len(asked)
    damages = [b"", whole[:-20], whole[65:], b"\xff" + whole, b"0" * 64 + whole[64:], b"[" * 100_000]
    digit = whole.index(b'"kernel_size":') + 14
    damages.append(whole[:digit] + b"7" + whole[digit + 1 :])  # valid JSON and a valid answer, but another one
    for number, damage in enumerate(damages, before + 1):
        assert damage != whole
        path.write_bytes(damage)
        assert grid.load(str(file)) == expected
        assert len(asked) == number
        assert path.read_bytes() == whole, "mended"


@pytest.mark.parametrize("place", ["a file", "folders in the way", "a relative path"])
def test_a_cache_that_cannot_be_is_no_error(place, file, tmp_path, monkeypatch, asked, cache):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").write_text("no folder")
    if place == "a file":
        monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    elif place == "a relative path":
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    else:
        grid.load(str(file))
        for path in cache.iterdir():
            path.unlink()
            path.mkdir()
        asked.clear()
    assert grid.load(str(file)) == grid.load(str(file))
    assert len(asked) == 4
    assert not (tmp_path / "relative").exists()
    assert not list(tmp_path.rglob("*.tmp"))


PLUGIN = """
from typing import ClassVar
from vitinit.initializers.registry import Initializer, register

class Theirs(Initializer):
    name: ClassVar[str] = "theirs"
    touches: ClassVar[tuple[str, ...]] = ("*",)
    deterministic: ClassVar[bool] = True
    gain: float = {gain}

    def apply(self, model, generator, progress):
        pass
"""


@pytest.mark.parametrize(("name", "wrapped"), [("their_package:Theirs", False), ("theirs", True)])
def test_a_plug_in_is_asked_each_time(name, wrapped, tmp_path, cache):
    """By dotted path and by entry point, also inside a placebo: changed code of theirs gives changed runs."""
    method = {"name": "placebo", "of": name} if wrapped else name
    content = {**GRID, "rows": {"Theirs": {"base": "trunc_normal", "method": method}}}
    path = write(tmp_path / "theirs.yaml", content)
    info = tmp_path / "their_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vitinit.initializers]\ntheirs = their_package:Theirs\n")
    script = f"""
import sys
from vitinit.benchmark.grids import grid
sys.dont_write_bytecode = True
print(grid.load({str(path)!r}).cells[0].spec.method.params)
"""
    for gain in (0.25, 0.75):
        (tmp_path / "their_package.py").write_text(textwrap.dedent(PLUGIN.format(gain=gain)))
        done = fresh("-c", script, cwd=tmp_path, path=(tmp_path, ROOT))
        resolved = {"of": {"name": name, "gain": gain}, "keep": "spectrum"} if wrapped else {"gain": gain}
        assert done.stdout == f"{resolved}\n", done.stderr
    assert not cache.exists()
