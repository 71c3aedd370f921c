"""What commands print: as wide as the terminal, short, in its encoding, and where what they write goes."""

from __future__ import annotations

import csv
import io
import itertools
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from scipy import stats as scipy_stats
from synthetic_records import done, everything, failed, skipped, write

from analysis.curves import __main__ as curves
from analysis.figures import __main__ as figures
from analysis.frame import LOCAL, REFERENCE, load
from analysis.report import __main__ as report
from analysis.tables import __main__ as tables
from analysis.tables.printing.reading import sentences, without_numbers
from analysis.tables.printing.terminal import to_terminal
from analysis.tables.registry import build

ROOT = Path(__file__).parents[2]
COMMANDS = {"tables": tables, "figures": figures, "curves": curves, "report": report}
GAINS = {"Mimetic": (5.0, 6.0, 7.5), "Imp.-3": (3.0, -4.0, 2.0), "Imp.-5": (-2.0, -2.5, -3.0)}


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Three seeds on one dataset, one on another."""
    root = tmp_path / "records"
    for seed, base in enumerate((40.0, 41.0, 42.0)):
        write(root, done("Kaiming uniform", (base,), seed=seed))
        for row, gains in GAINS.items():
            write(root, done(row, (base + gains[seed],), seed=seed))
    for row, top1 in (("Kaiming uniform", 10.0), ("Mimetic", 12.0)):
        write(root, done(row, (top1,), dataset="cifar100"))
    return root


def test_three_sentences_by_hand(records: Path) -> None:
    ahead, limits, look = sentences(build(load([records])))
    interval = scipy_stats.ttest_1samp(GAINS["Mimetic"], 0).confidence_interval()
    gain = f"+{sum(GAINS['Mimetic']) / 3:.2f} points [+{interval.low:.2f}, +{interval.high:.2f}]"
    assert ahead.startswith(f"Ahead of its base (uncorrected): on cifar10 Mimetic by {gain} (behind: Imp.-5); ")
    assert ahead.endswith("on cifar100 none (most Mimetic: +2.00 points, n=1).")
    quantiles = scipy_stats.t.ppf(0.975, 2) + scipy_stats.t.ppf(0.8, 2)
    seen = sorted(quantiles * scipy_stats.sem(gains) for gains in GAINS.values())
    assert f"under {seen[0]:.1f} to {seen[-1]:.1f} points on cifar10, of any size on cifar100" in limits
    assert limits.startswith("1 to 3 seeds cannot show differences ")
    assert limits.endswith("a sign-flip test has p = 0.25 or more.")
    assert look.startswith("Highest: on cifar10 Mimetic (47.17)")
    assert "Largest still open: Mimetic on cifar100, +2.00 points, n=1." in look


def test_a_highest_mean_of_few_seeds_is_compared_with_nobody(records: Path) -> None:
    write(records, *(done("ConViT", (90.0,), seed=seed) for seed in (0, 1)))
    table = build(load([records]))
    assert "Highest: on cifar10 ConViT (90.00); on" in sentences(table)[-1]
    assert table.cells["Mimetic", "cifar10"].best


def test_what_differs_beside_the_initialisation_is_said(tmp_path: Path, records: Path) -> None:
    write(tmp_path, *(done("Kaiming uniform", (50.0,), seed=seed) for seed in (0, 1, 2)))
    for seed in (0, 1, 2):
        record = done("Mimetic", (60.0 + seed,), seed=seed)
        recipe = record.spec.recipe.model_copy(update={"weight_decay": 0.5})
        run = record.spec.model_copy(update={"recipe": recipe})
        write(tmp_path, record.model_copy(update={"spec": run, "run_id": run.run_id}))
        write(tmp_path, done("Trunc normal", (40.0,), label="DeiT", seed=seed, position="learned", pool="token"))
    table = build(load([tmp_path]), baseline="Kaiming uniform")
    (note,) = [note for note in table.notes if note.startswith("More than the initialisation")]
    assert "DeiT in pool token (not avg), position learned (not sincos)" in note
    assert re.search(r"Mimetic in weight_decay 0\.5 \(not [0-9.]+\)", note)
    (line,) = without_numbers(table)
    assert "DeiT in pool, position" in line
    assert "Mimetic in weight_decay" in line
    assert without_numbers(build(load([records]))) == []


def test_nothing_is_read_where_nothing_is_compared(tmp_path: Path) -> None:
    assert sentences(build(load([write(tmp_path, done("Mimetic"))]))) == []


def test_skips_and_failures_are_a_line_a_reason(tmp_path: Path) -> None:
    rows = "Trunc normal", "Imp.-3", "Imp.-5"
    root = write(tmp_path, done("Mimetic"), *(skipped(row, dataset="digits") for row in rows), failed("ConViT"))
    found = without_numbers(build(load([root])))
    reason = next(iter(load([root]).contents.skipped.values())).reason
    assert found[0] == f"3 runs skipped: {reason}"
    assert found[1].startswith("1 run failed: RuntimeError: ")
    assert len(found) == 2


def test_a_column_without_a_number_takes_no_room(records: Path) -> None:
    rows = "Kaiming uniform", "Mimetic"
    write(records, *(skipped(row, dataset="digits") for row in rows), failed("ConViT", dataset="svhn"))
    table = build(load([records]))
    printed = "\n".join(line.plain for line in to_terminal(table, 200))
    assert {"cifar10", "cifar100", "digits", "svhn"} == set(table.columns)
    assert [name for name in table.columns if name in printed] == ["cifar10", "cifar100"]
    assert "ConViT" in printed, "the row stays"


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_nothing_is_wider_than_it_and_all_is_short(records: Path, tmp_path: Path, width: int) -> None:
    """A pseudo-terminal of that width, without a word of it in the environment."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "r").symlink_to(records)
    command = [sys.executable, "-m", "analysis.tables", "--results", "r"]
    process = subprocess.Popen(
        command, cwd=tmp_path / "x", env={**environment, "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    with io.FileIO(ours) as terminal:
        while True:
            try:
                said += (part := terminal.read(65536) or b"")
            except OSError:  # closed at the other end
                break
            if not part:
                break
    assert process.wait() == 0, said.decode()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= 45
    assert any(line.split()[:1] == ["Mimetic"] for line in lines)
    assert not any("gain [95 %]" in line for line in lines), "unasked"
    assert not any("IQM" in line for line in lines)


def test_all_prints_every_table_and_note(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    arguments = ["--results", str(everything(tmp_path / "records"))]
    assert tables.main(arguments) == 0
    brief = capsys.readouterr().out
    assert tables.main([*arguments, "--all"]) == 0
    whole = capsys.readouterr().out
    table = build(load([tmp_path / "records"]))
    assert all(note in whole for note in table.notes)
    assert sum(note in brief for note in table.notes) < len(table.notes) / 2


def test_metric_and_together_on_the_command_line(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for dataset, seed in itertools.product(("cifar10", "cifar100"), range(3)):
        write(tmp_path / "records", done("Kaiming uniform", (35.0, 30.0 + seed), dataset=dataset, seed=seed))
        write(tmp_path / "records", done("Mimetic", (60.0 + seed, 50.0), dataset=dataset, seed=seed))

    def shown(*options: str) -> tuple[dict[tuple[str, str], float], str]:
        arguments = ["--results", str(tmp_path / "records"), "--out", str(tmp_path / "out"), "--format", "csv"]
        assert tables.main([*arguments, *options]) == 0
        with (tmp_path / "out/small.csv").open(newline="") as file:
            means = {(line["row"], line["column"]): float(line["mean"]) for line in csv.DictReader(file)}
        return means, capsys.readouterr().out

    def on_both(kaiming: float, mimetic: float) -> dict[tuple[str, str], float]:
        means = {"Kaiming uniform": kaiming, "Mimetic": mimetic}
        return {(row, column): mean for row, mean in means.items() for column in ("cifar10", "cifar100")}

    last, printed = shown()
    assert last == on_both(31, 50)
    assert "columns together" not in printed
    assert "after the last epoch" in printed
    best, printed = shown("--metric", "best", "--together")
    assert best == on_both(35, 61)
    assert "Best test top-1" in printed
    together = printed[printed.index("2 columns together") :]
    assert re.search(r"Mimetic .* 61\.0 +61\.0 \[60\.\d, 61\.\d\] +1\.00", together)
    with pytest.raises(SystemExit) as stop:
        tables.main(["--metric", "first"])
    assert stop.value.code == 2


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


@pytest.mark.parametrize("command", COMMANDS)
def test_what_comes_from_the_committed_records_goes_elsewhere_than_the_users_own(
    tmp_path: Path, monkeypatch, capsys, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for root in (LOCAL, REFERENCE):
        write(tmp_path / root, done("Mimetic", study="small"))
    assert COMMANDS[command].main([]) == 0
    own = {path: path.read_bytes() for path in (tmp_path / LOCAL).rglob("*") if path.is_file()}
    write(tmp_path / REFERENCE, done("Imp.-3", study="small"))
    committed = {path for path in (tmp_path / REFERENCE).rglob("*") if path.is_file()}
    for folder in (REFERENCE, tmp_path / REFERENCE):
        assert COMMANDS[command].main(["--results", str(folder)]) == 0
    assert {path: path.read_bytes() for path in own} == own
    assert {path for path in (tmp_path / REFERENCE).rglob("*") if path.is_file()} == committed
    written = "report.html" if command == "report" else f"small/{command}"
    assert (tmp_path / LOCAL / "reference" / written).exists()


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
def test_a_terminal_that_lacks_characters(records: Path, tmp_path: Path, name: str) -> None:
    write(records, done("Mimetic", label="初期化 −±"))
    study = ["small"] if name in ("choose", "standing") else []
    for words in (["--gain", "--digits", "2"] if name == "tables" else [], ["--help"]):
        ran = subprocess.run(
            [sys.executable, "-m", f"analysis.{name}", *study, "--results", str(records), *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C"},
            capture_output=True,
        )
        said = (ran.stdout + ran.stderr).decode("ascii")
        assert "Traceback" not in said
        assert ran.returncode == (0 if words or name in COMMANDS else 2), said
        if "--help" in words or name != "tables":
            continue
        assert "??? -" in said
        assert "-2.50 [-3.74, -1.26]" in said, "a minus is a minus"


def test_commands_that_are_printed_can_be_copied_and_what_is_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    arguments = ["--results", str(everything(tmp_path / "my records")), "--out", str(tmp_path / "out")]
    assert tables.main(arguments) == 0
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if "-m analysis.report" in line)
    assert shlex.split(line)[3:5] == ["--results", str(tmp_path / "my records")]
    assert "No published numbers" not in printed
    monkeypatch.setattr("analysis.tables.__main__.FOLDER", tmp_path / "not here")
    assert tables.main(arguments) == 0
    assert f"a clone has them, {tmp_path / 'not here'} is not there" in capsys.readouterr().out
