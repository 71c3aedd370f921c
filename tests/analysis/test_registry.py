"""A file of a user's own that has an error: one line that says where, and all others are written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from synthetic_records import done, write

from vitinit.analysis import report
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures import drawing
from vitinit.analysis.figures.registry import FIGURES, Drawing, Drawings
from vitinit.analysis.tables import __main__ as tables
from vitinit.analysis.tables.registry import TABLES, Kind
from vitinit.initializers.errors import BrokenFile, VitinitError
from vitinit.initializers.plugins import Registry


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a study; and of its tables and figures one each with an error, in a library that it calls."""

    def broken(*_: object) -> dict[str, object]:
        return pd.DataFrame({"a": [1]})["b"]  # the line that is to be named

    for registry, entry in (
        (TABLES, Kind("_mine", 3, lambda study: True, broken)),
        (FIGURES, Drawing("mine", "why", broken, "caption", 3)),
    ):
        registry.search()
        monkeypatch.setitem(registry.known, entry.name, entry)
    return write(tmp_path / "records", *(done("Mimetic", (50.0, 60.0), seed=seed) for seed in range(3)))


def where() -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith("# the line that is to be named")]
    return re.escape(f"KeyError: 'b' (test_registry.py:{number})")


def test_all_else_is_written_drawn_and_shown(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--results", str(records), "--out"]
    assert tables.main([*arguments, str(tmp_path / "tables")]) == 2
    printed = capsys.readouterr()
    assert re.fullmatch(f"error: table small_mine: {where()}\n", printed.err)
    assert "60.0" in printed.out
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["small.tex"]
    assert figures.main([*arguments, str(tmp_path / "figures")]) == 2
    assert re.fullmatch(f"error: figure mine: {where()}\n", capsys.readouterr().err)
    assert (tmp_path / "figures/accuracy.png").is_file()
    assert report.main([*arguments, str(tmp_path / "page")]) == 2
    assert re.fullmatch(f"error: table small_mine: {where()}; figure mine: {where()}\n", capsys.readouterr().err)
    assert "60.0" in (tmp_path / "page/small/report.html").read_text(encoding="utf-8")


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> str:
    """One of a user's, whose only file has this text."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "mine.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_file_that_cannot_be_read_and_a_name_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[Kind] = Registry("table", package(tmp_path, monkeypatch, "their_tables", "def seconds(:\n"))
    with pytest.raises(BrokenFile, match=r"their_tables.mine cannot be imported: SyntaxError.*mine.py, line 1"):
        registry.entries()
    kind = next(iter(TABLES.entries()))
    registry.put(kind)
    with pytest.raises(VitinitError, match="two tables are called '': in their_tables"):
        registry.put(replace(kind))


def test_a_figure_that_cannot_be_imported_is_one_line(tmp_path: Path, monkeypatch, capsys) -> None:
    theirs = package(tmp_path, monkeypatch, "their_figures", "import no_such_library\n")
    assert drawing.main(Drawings(theirs), "Draw.", []) == 2
    line = "error: their_figures.mine cannot be imported: ModuleNotFoundError: No module named 'no_such_library'\n"
    assert capsys.readouterr().err == line
