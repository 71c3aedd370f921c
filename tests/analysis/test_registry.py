"""A file of a user's own that has an error: one line that says where, and all others are written."""

import re
from pathlib import Path

import pandas as pd
import pytest
from synthetic_records import done, write

from vitinit.analysis import report
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.registry import FIGURES, Drawing, Drawings
from vitinit.analysis.tables import __main__ as tables
from vitinit.analysis.tables.registry import TABLES, Kind
from vitinit.initializers.errors import VitinitError


def where():
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith("# the line that is to be named")]
    return re.escape(f"KeyError: 'b' (test_registry.py:{number})")


def test_all_else_is_written_drawn_and_shown(tmp_path, monkeypatch, capsys):
    def broken(*_):
        return pd.DataFrame({"a": [1]})["b"]  # the line that is to be named

    for registry, entry in (
        (TABLES, Kind("_mine", 3, lambda study: True, broken)),
        (FIGURES, Drawing("mine", "", broken)),
    ):
        registry.search()
        monkeypatch.setitem(registry.known, entry.name, entry)
    records = write(tmp_path / "records", *(done("Mimetic", (50.0, 60.0), seed=seed) for seed in range(3)))
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


def test_a_file_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/__init__.py").write_text("")
    (tmp_path / "theirs/mine.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    line = "theirs.mine cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"
    with pytest.raises(VitinitError, match=f"^{line}$"):
        Drawings("theirs").entries()
