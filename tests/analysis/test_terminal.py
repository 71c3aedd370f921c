"""Output of commands: in the terminal's encoding, and where what they write goes."""

import io
import sys

import pytest
from synthetic_records import done, several, write

from vitinit.analysis import choose, report, standing
from vitinit.analysis.curves import __main__ as curves
from vitinit.analysis.figures import __main__ as figures
from vitinit.analysis.frame import LOCAL, REFERENCE
from vitinit.analysis.tables import __main__ as tables

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
        written = "report.html" if name == "report" else f"small/{name}"
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
    more = ["--gain"] if name == "tables" else []
    assert module.main([*study, "--results", str(records), *more]) == (0 if name in COMMANDS else 2)
    if name == "tables":
        said = terminal.buffer.getvalue().decode("ascii")
        assert "??? -" in said
        assert "-2.5 [-3.7, -1.3]" in said, "a minus is a minus"
