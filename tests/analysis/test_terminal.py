"""What commands print: as wide as the terminal, short, in its encoding, and where what they write goes."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path

import pytest
from synthetic_records import done, everything, several, write

from vitinit.analysis import choose, report, standing
from vitinit.analysis.curves import __main__ as curves
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.frame import LOCAL, REFERENCE, load
from vitinit.analysis.tables import __main__ as tables
from vitinit.analysis.tables.registry import build

ROOT = Path(__file__).parents[2]
COMMANDS = {"tables": tables, "figures": figures, "curves": curves, "report": report}
BASE = (40.0, 41.0, 42.0)
GAINS = {"Mimetic": (5.0, 6.0, 7.5), "Imp.-3": (3.0, -4.0, 2.0), "Imp.-5": (-2.0, -2.5, -3.0)}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Three seeds on one dataset, one on another."""
    gained = {row: [base + gain for base, gain in zip(BASE, its, strict=True)] for row, its in GAINS.items()}
    root = several(tmp_path / "records", {"Kaiming uniform": BASE, **gained})
    return several(root, {"Kaiming uniform": [10.0], "Mimetic": [12.0]}, dataset="cifar100")


def test_all_prints_every_table_and_note_and_commands_can_be_copied(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    root = everything(tmp_path / "my records")
    arguments = ["--results", str(root), "--out", str(tmp_path / "out")]
    assert tables.main(arguments) == 0
    brief = capsys.readouterr().out
    (line,) = (line for line in brief.splitlines() if "-m vitinit.analysis.report" in line)
    assert shlex.split(line)[3:5] == ["--results", str(root)]
    assert "No published numbers" not in brief
    monkeypatch.setattr("vitinit.analysis.tables.__main__.FOLDER", tmp_path / "not here")
    assert tables.main([*arguments, "--all"]) == 0
    whole = capsys.readouterr().out
    assert f"{tmp_path / 'not here'} is missing" in whole
    notes = build(load([root])).notes
    assert all(note in whole for note in notes)
    assert sum(note in brief for note in notes) < len(notes) / 2


@pytest.mark.long
def test_all_commands_write_into_the_folder_of_the_study(records: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(records, done("Mimetic", study="other"))
    for command in COMMANDS.values():
        assert command.main(["--results", str(records)]) == 0
    for study in ("small", "other"):
        assert (records / study / "tables" / f"{study}.tex").is_file()
        assert (records / study / "figures").is_dir()
        assert (records / study / "curves").is_dir()
    assert (records / "report.html").is_file()
    assert report.main(["--results", str(records), "--study", "other"]) == 0
    assert (records / "other" / "report.html").is_file()
    assert load([records], "other").contents.problems == [], "what is written is no record"


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_comes_from_the_committed_records_goes_elsewhere_than_the_users_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for root in (LOCAL, REFERENCE):
        write(tmp_path / root, done("Mimetic"))
    for command in COMMANDS.values():
        assert command.main([]) == 0
    own = contents(tmp_path / LOCAL)
    write(tmp_path / REFERENCE, done("Imp.-3"))
    committed = contents(tmp_path / REFERENCE)
    for name, command in COMMANDS.items():
        for folder in (REFERENCE, tmp_path / REFERENCE):
            assert command.main(["--results", str(folder)]) == 0
        written = "report.html" if name == "report" else f"small/{name}"
        assert (tmp_path / LOCAL / "reference" / written).exists()
    assert own.items() <= contents(tmp_path / LOCAL).items()
    assert contents(tmp_path / REFERENCE) == committed


def test_an_unknown_study_that_is_committed_is_found_by_what_is_said(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / LOCAL, done("Mimetic", study="mine"))
    write(tmp_path / REFERENCE, done("Mimetic", study="table4-small"))
    for command in COMMANDS.values():
        assert command.main(["--study", "table4-small"]) == 2
        assert "; it is in results/reference: --results results/reference\n" in capsys.readouterr().err
        assert command.main(["--study", "nowhere"]) == 2
        assert "results/reference" not in capsys.readouterr().err


@pytest.mark.parametrize("name", [*COMMANDS, "choose", "standing"])
def test_a_terminal_that_lacks_characters(records: Path, tmp_path: Path, monkeypatch, name: str) -> None:
    """Printed in this process, as if the terminal were that of `LANG=C`."""
    write(records, done("Mimetic", label="初期化 −±"))
    monkeypatch.chdir(tmp_path)
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    module, study = {**COMMANDS, "choose": choose, "standing": standing}[name], ["small"] * (name not in COMMANDS)
    with pytest.raises(SystemExit, match="0"):
        module.main(["--help"])
    more = ["--gain"] if name == "tables" else []
    assert module.main([*study, "--results", str(records), *more]) == (0 if name in COMMANDS else 2)
    said = terminal.buffer.getvalue().decode("ascii")
    if name == "tables":
        assert "??? -" in said
        assert "-2.5 [-3.7, -1.3]" in said, "a minus is a minus"
