"""Table 2: numbers recomputed by hand, counts, escaping, stable bytes."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_records import ROWS, done, failed, skipped, write

from analysis import tables
from analysis.frame import load
from analysis.tables import build, signed, to_latex
from analysis.text import escape_latex, one_line

GOLDEN = Path(__file__).parent / "golden" / "table2.tex"
"""Written by this module's `main` from `everything`; look at the difference before you renew it."""

MIMETIC = {0: 41.25, 1: 43.5, 2: 40.0, 7: 90.0}
TRUNC = {0: 40.0, 1: 39.0, 2: 42.75, 5: 10.0}
WIDE = ("cifar10", "cifar100", "svhn", "imagenet")
NASTY = r"a_b%#&{}~^\$ [x] |<>| ± −1 é 好 --study"


def paired(root: Path) -> Path:
    for row, values in (("Mimetic", MIMETIC), ("Trunc normal", TRUNC)):
        for seed, value in values.items():
            write(root, done(row, (99.0, value), seed=seed))
    return root


def everything(root: Path) -> Path:
    """Six rows, four datasets, three seeds; one run failed, one skipped, two files that are no records."""
    for column, (dataset, train_size) in enumerate(
        (("digits", None), ("cifar10", 5000), ("cifar10", None), ("cifar100", None))
    ):
        for place, row in enumerate(ROWS):
            for seed in range(3):
                which = {"dataset": dataset, "train_size": train_size, "seed": seed}
                if (dataset, row, seed) == ("cifar100", "ConViT", 1):
                    write(root, failed(row, **which))
                elif (dataset, row, seed) == ("cifar100", "ConViT", 2):
                    write(root, skipped(row, **which))
                else:
                    write(root, done(row, (20.0, 30.0, 50 + place + 0.5 * seed * place + column), **which))
    (root / "small" / "0000000000000000.json").write_text('{"status": "done", "run_id": ')
    (root / "small" / "notes.json").write_text('{"hello": "world"}')
    return root


def test_mean_std_and_paired_difference(tmp_path):
    table = build(load([paired(tmp_path)]))
    cell = table.cells["Mimetic", "cifar10"]
    assert cell.n == 4
    assert cell.mean == pytest.approx(statistics.mean(MIMETIC.values()))
    assert cell.std == pytest.approx(statistics.stdev(MIMETIC.values()))
    common = MIMETIC.keys() & TRUNC.keys()
    assert cell.difference == pytest.approx(statistics.mean(MIMETIC[seed] - TRUNC[seed] for seed in common))
    assert cell.ours_below == f"+{cell.difference:.2f}, n=4"
    assert (cell.paper, cell.paper_below) == ("91.16", "+2.53")
    assert "Differences over fewer seeds than n: Mimetic on cifar10 (3)." in table.notes
    baseline = table.cells["Trunc normal", "cifar10"]
    assert baseline.difference is None
    assert (baseline.ours_below, baseline.paper_below) == ("n=4", "")


def test_metric_and_baseline(tmp_path):
    study = load([paired(tmp_path)])
    best = build(study, metric="best").cells["Mimetic", "cifar10"]
    assert (best.mean, best.std) == (99.0, 0.0)
    turned = build(study, baseline="Mimetic").cells["Trunc normal", "cifar10"]
    assert turned.difference == pytest.approx(-build(study).cells["Mimetic", "cifar10"].difference)
    assert turned.paper_below == "−2.53"
    with pytest.raises(tables.VitinitError, match="unknown baseline row 'Mimetik'; did you mean 'Mimetic'"):
        build(study, baseline="Mimetik")


def test_one_seed_has_no_spread_and_no_baseline_no_difference(tmp_path):
    table = build(load([write(tmp_path, done("Mimetic", (50.0,)))]))
    assert table.cells["Mimetic", "cifar10"].ours == "50.00"
    assert table.cells["Mimetic", "cifar10"].ours_below == "n=1"
    assert "baseline row Trunc normal has no finished run" in table.notes[0]


def test_a_deleted_record_changes_only_its_cells(tmp_path):
    root = everything(tmp_path)
    before = build(load([root])).cells
    (root / "small" / f"{done('Imp.-3', (0.0, 0.0, 0.0), dataset='digits', seed=1).run_id}.json").unlink()
    after = build(load([root])).cells
    assert before.keys() == after.keys()
    assert [key for key in before if before[key] != after[key]] == [("Imp.-3", "digits")]
    assert after["Imp.-3", "digits"].n == 2


def test_imagenet_is_the_last_column_with_one_run_a_row_beside_the_published_number(tmp_path):
    """paper-facts 1.1: ImageNet-1K, five rows."""
    published = {"Kaiming uniform": 74.11, "Trunc normal": 73.42, "Mimetic": 74.34, "Imp.-3": 74.24, "Imp.-5": 74.40}
    for row in published:
        write(tmp_path, *(done(row, (90.0,), study="table2", seed=seed) for seed in range(3)))
        write(tmp_path, done(row, (70.0,), study="table2", dataset="imagenet"))
    table = build(load([tmp_path]))
    assert [column.label for column in table.columns] == ["cifar10", "imagenet"]
    for row, value in published.items():
        cell = table.cells[row, "imagenet"]
        assert (cell.n, cell.mean, cell.published.value) == (1, 70.0, value)
    assert "74.40" in to_latex(table)


def test_a_cell_without_runs_is_a_dash_beside_the_published_number(tmp_path):
    root = write(tmp_path, done("Trunc normal"), done("Mimetic", dataset="digits"), failed("Imp.-3"))
    cells = build(load([root])).cells
    assert (cells["Mimetic", "cifar10"].ours, cells["Mimetic", "cifar10"].paper) == ("–", "91.16")
    assert (cells["Imp.-3", "cifar10"].ours, cells["Imp.-3", "cifar10"].paper) == ("–", "91.62")
    assert (cells["Trunc normal", "digits"].ours, cells["Trunc normal", "digits"].paper) == ("–", "")


def test_the_foot_counts_and_names(tmp_path):
    foot = "\n".join(build(load([everything(tmp_path)])).notes)
    assert "Runs: 70 finished, 1 failed, 1 skipped; 2 invalid files left out." in foot
    assert "Failed: ConViT on cifar100 (seed 1): RuntimeError: out of memory\n" in foot
    assert "Skipped: ConViT on cifar100 (seed 2): no images here\n" in foot
    assert "Invalid file: small/0000000000000000.json: Invalid JSON" in foot
    assert "Invalid file: small/notes.json: " in foot
    assert "ours with: svd" in foot
    assert "cifar10[5000] (5,000 training images)" in foot
    assert "ViT width 48 depth 4, 3 heads, patch 4, 3 epochs; ConViT: ConViT width 48 depth 4, 4 heads" in foot
    assert "single runs" in foot


@pytest.mark.parametrize(
    ("environments", "says"),
    [
        ([{"commit": "a" * 40}, {"commit": "b" * 40}], "mixed commits aaaaaaaaaa, bbbbbbbbbb."),
        ([{"commit": "a" * 40, "dirty": True}, {"commit": "a" * 40}], "1 of 2 runs from a tree with uncommitted"),
        ([{}, {}], "commit unknown."),
        ([{"commit": "a" * 40}, {"commit": None}], "commit aaaaaaaaaa (1 run without one)."),
        ([{"changed_while_running": [{"from_step": 7, "changed": {"python": ["3.10", "3.11"]}}]}, {}], "1 run went on"),
    ],
)
def test_commits(tmp_path, environments, says):
    for seed, environment in enumerate(environments):
        write(tmp_path, done("Mimetic", seed=seed, environment=environment))
    assert says in "\n".join(build(load([tmp_path])).notes)


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("a_b%#&{}$", r"a\_b\%\#\&\{\}\$"),
        ("~^\\", r"\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ("±1 −2 × <|>", r"$\pm$1 $-$2 $\times$ \textless{}\textbar{}\textgreater{}"),
        ("[5000]*", "{[}5000{]}{*}"),
        ("a--b", "a-{}-b"),
        ("é 好", "é {[}U+597D{]}"),
        ("two\nlines\x1b[31m", "two lines?{[}31m"),
    ],
)
def test_latex_escaping(text, latex):
    assert escape_latex(text) == latex


def test_one_line_cuts_long_words():
    assert one_line("x" * 50, 10) == "x" * 9 + "…"


@pytest.mark.parametrize(("value", "text"), [(1.234, "+1.23"), (-0.5, "−0.50"), (-0.001, "0.00"), (0.0, "0.00")])
def test_signed(value, text):
    assert signed(value) == text


def test_golden_table(tmp_path):
    assert tables.main(["--results", str(everything(tmp_path)), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "table2.tex").read_text(encoding="utf-8") == GOLDEN.read_text(encoding="utf-8")


def test_names_in_records_are_never_markup(tmp_path, capsys):
    root = write(tmp_path, done("Mimetic", label="[red]row[/red] [/]"), done("Trunc normal", label=NASTY))
    assert tables.main(["--results", str(root), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "[red]row[/red] [/]" in printed
    assert NASTY in printed


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
@pytest.mark.parametrize("content", ["everything", "published everywhere", "nasty"])
def test_compiles_with_booktabs_alone(tmp_path, content):
    if content == "everything":
        root = everything(tmp_path)
    elif content == "published everywhere":
        root = write(
            tmp_path, *(done(row, (100.0,), dataset=name, seed=s) for row in ROWS for name in WIDE for s in (0, 1))
        )
    else:
        root = write(tmp_path, done("Mimetic", label=NASTY), failed("Imp.-3", message=NASTY))
    (tmp_path / "table2.tex").write_text(to_latex(build(load([root]))), encoding="utf-8")
    (tmp_path / "document.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\\input{table2}\\end{document}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "document.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert run.returncode == 0, run.stdout
    assert "Overfull" not in run.stdout


@pytest.mark.parametrize("module", ["analysis.tables", "analysis.figures"])
def test_errors_are_one_line_and_exit_code_2(tmp_path, module, capsys):
    main = __import__(module, fromlist=["main"]).main
    for arguments in (["--results", str(tmp_path)], ["--results", str(tmp_path / "nowhere")]):
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert re.fullmatch(r"error: .+\n", captured.err)
        assert captured.out == ""
    (tmp_path / "file").write_text("")
    root = write(tmp_path / "records", done("Mimetic"))
    assert main(["--results", str(root), "--out", str(tmp_path / "file")]) == 2
    assert "error: cannot write" in capsys.readouterr().err


def test_imports_stay_light():
    script = (
        "import sys, analysis.tables, analysis.figures, analysis.notes;"
        "print(sorted({'torch', 'timm', 'pandas', 'matplotlib', 'runners'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
