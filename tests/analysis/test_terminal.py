"""What commands print: as wide as the terminal, short, in its encoding, and where what they write goes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from synthetic_records import done, several, write

from vitinit.analysis import choose, report, standing
from vitinit.analysis.curves import __main__ as curves
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.frame import LOCAL, REFERENCE, load
from vitinit.analysis.tables import __main__ as tables

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
