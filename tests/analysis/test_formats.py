"""Every format: golden files, escaping, LaTeX that compiles without overfull boxes."""

from __future__ import annotations

import subprocess
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
from convit_records import ablation, efficiency, without_terms
from synthetic_records import ROWS, done, everything, failed, several, write

from vitinit.analysis.frame import load
from vitinit.analysis.tables import __main__ as tables
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import to_html, to_latex, to_markdown
from vitinit.analysis.tables.shared import TableLayout
from vitinit.analysis.text import escape_latex, escape_markdown, one_line, signed

NASTY = r"a_b%#&{}~^\$ [x] |<>| ± −1 é 好 --study"


def test_texts_of_every_format():
    for text, latex in (
        ("a_b%#&{}$", r"a\_b\%\#\&\{\}\$"),
        ("~^\\", r"\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ("±1 −2 × <|>", r"$\pm$1 $-$2 $\times$ \textless{}\textbar{}\textgreater{}"),
        ("[5000]*", "{[}5000{]}{*}"),
        ("a--b", "a-{}-b"),
        ("é 好", "é {[}U+597D{]}"),
        ("two\nlines\x1b[31m", "two lines?{[}31m"),
    ):
        assert escape_latex(text) == latex
    assert one_line("x" * 50, 10) == "x" * 9 + "…"
    assert [signed(value) for value in (1.234, -0.5, -0.001, 0.0)] == ["+1.23", "−0.50", "0.00", "0.00"]


def test_names_in_records_are_never_markup(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    root = write(tmp_path, done("Mimetic", label="[red]row[/red] [/]"), done("Trunc normal", label=NASTY))
    assert tables.main(["--results", str(root), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "[red]row[/red] [/]" in printed
    assert NASTY in printed


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_html_and_markdown_show_names_as_they_are(tmp_path):
    name = "<script>x</script> a|b *c* `d`"
    table = build(load([write(tmp_path, done("Mimetic", label=name), failed("Imp.-3", message="<b>&"))]))
    page = _Tags()
    page.feed(to_html(table, TableLayout(whole=True)))
    assert "script" not in page.tags
    assert name in page.texts
    assert any("<b>&" in text for text in page.texts)
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in lines} == {3}
    assert escape_markdown(name) == r"\<script\>x\</script\> a\|b \*c\* \`d\`"


def wide(root: Path) -> Path:
    """Long cells everywhere: two-digit differences of both signs, published numbers in four columns, long names."""
    for (number, row), name in product(enumerate(ROWS), ("cifar10", "cifar100", "svhn", "imagenet")):
        tops = [100.0 - 9.99 * number * seed if number else 12.34 + 20 * seed for seed in range(3)]
        label = f"{row} with quite_a_long_name/of-its-own/{'x' * 20}" if number == 5 else row
        several(root, {row: tops}, dataset=name, label=label, paper=True)
    return root


def many_rows(root: Path) -> Path:
    """The shape of grid table6: more rows than a page holds, one dataset in two settings."""
    inputs = ("P", "U", "G", "A", "B")
    rows = [f"{first} / {later}" for first in inputs for later in inputs]
    impulse = {"kernel_size": 3, "offsets": "random"}
    for epochs in (1, 2):
        several(root, {"Kaiming uniform": [(60.0 + seed,) * epochs for seed in range(3)]})
        for row in rows:
            method = {"name": "impulse", "params": impulse | {"pseudo_input": row}}
            with mock.patch.dict(ROWS, {row: {"base": {"name": "kaiming_uniform"}, "method": method}}):
                several(root, {row: [(80.0 + 10 * seed,) * epochs for seed in range(3)]})
    return root


def costs(root: Path) -> Path:
    """A table of what initialisation does and costs, whose milliseconds are long, on two datasets."""
    datasets = {"cifar10": 5000, "cifar100": None}
    for name, row, seed in product(datasets, ("Kaiming uniform", "Imp.-3"), range(2)):
        record = done(row, dataset=name, train_size=datasets[name], seed=seed, label=f"{row:x<18}")
        fidelity = record.init.real_images if row[0] == "I" else None
        init = record.init.model_copy(update={"seconds": 40.0 + seed, "pseudo_input": fidelity})
        write(root, record.model_copy(update={"init": init}))
    return root


def nasty(root: Path) -> Path:
    return write(root, done("Mimetic", label=NASTY), failed("Imp.-3", message=NASTY))


@pytest.mark.latex
@pytest.mark.parametrize("records", [everything, wide, many_rows, nasty, efficiency, ablation, without_terms, costs])
def test_latex_compiles_with_booktabs_alone_and_nothing_sticks_out(tmp_path, records):
    study = load([records(tmp_path / "records")])
    found = names(study)
    for name in found:
        for gain in (False, True):
            latex = to_latex(build(study, name), TableLayout(gain=gain))
            (tmp_path / f"{name}{gain}.tex").write_text(latex, encoding="utf-8")
    inputs = "".join(f"\\input{{{name}{gain}}}\\clearpage " for name in found for gain in (False, True))
    (tmp_path / "document.tex").write_text(
        f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}{inputs}\\end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-draftmode", "document.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert run.returncode == 0, run.stdout
    assert "Overfull" not in run.stdout
    assert "too large" not in run.stdout
