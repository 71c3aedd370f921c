"""Commands: a file of a user's own that has an error, the terminal's encoding, and where what they write goes."""

import io
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from synthetic_records import done, several, write

from vitinit.analysis import choose, report, standing
from vitinit.analysis.curves import __main__ as curves
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.figures.registry import FIGURES, Drawing
from vitinit.analysis.frame import LOCAL, REFERENCE
from vitinit.analysis.tables import __main__ as tables
from vitinit.analysis.tables.registry import TABLES, Kind


def where():
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith("# the line that is to be named")]
    return re.escape(f"KeyError: 'b' (test_commands.py:{number})")


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


# --- output ---


COMMANDS = {"tables": tables, "figures": figures, "curves": curves, "report": report}


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_comes_from_the_committed_records_goes_elsewhere_than_the_users_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for root in (LOCAL, REFERENCE):
        write(tmp_path / root, done("Mimetic"))
    for command in COMMANDS.values():
        assert command.main([]) == 0
    own = contents(tmp_path / LOCAL)
    assert {"tables/small.tex", "figures/accuracy.png", "report.html"} <= {
        str(path.relative_to(tmp_path / LOCAL / "small")) for path in own if "small" in path.parts
    }
    write(tmp_path / REFERENCE, done("Imp.-3"))
    committed = contents(tmp_path / REFERENCE)
    for name, command in COMMANDS.items():
        assert command.main(["--results", str(tmp_path / REFERENCE)]) == 0
        written = {"report": "report.html", "curves": ""}.get(name, f"small/{name}")  # no curve is drawn
        assert (tmp_path / LOCAL / "reference" / written).exists()
    assert own.items() <= contents(tmp_path / LOCAL).items()
    assert contents(tmp_path / REFERENCE) == committed


@pytest.mark.parametrize("name", [*COMMANDS, "choose", "standing"])
def test_a_terminal_that_lacks_characters(tmp_path, monkeypatch, name):
    """Printed in this process, as if the terminal were that of `LANG=C`."""
    records = several(tmp_path / "records", {"Kaiming uniform": (40.0, 41.0, 42.0), "Imp.-5": (38.0, 38.5, 39.0)})
    write(records, done("Mimetic", label="初期化 −±"))
    monkeypatch.chdir(tmp_path)
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    module, study = {**COMMANDS, "choose": choose, "standing": standing}[name], ["small"] * (name not in COMMANDS)
    assert module.main(["--help"]) == 0
    more = {"tables": ["--gain"], "figures": ["--figure", "accuracy"]}.get(name, [])
    assert module.main([*study, "--results", str(records), *more]) == (0 if name in COMMANDS else 2)
    if name == "tables":
        said = terminal.buffer.getvalue().decode("ascii")
        assert "??? -" in said
        assert "-2.5 [-3.7, -1.3]" in said, "a minus is a minus"
