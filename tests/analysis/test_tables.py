"""Tables: numbers recomputed by hand, what is bold, tested and noted, and every format."""

from __future__ import annotations

import html
import io
import re
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from convit_records import masked, run
from scipy import stats as scipy_stats
from synthetic_records import done, everything, failed, finished, respecified, several, skipped, spec, write

from vitinit.analysis.frame import load
from vitinit.analysis.gains import contrasts, label
from vitinit.analysis.tables import __main__ as tables
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import FORMATS, to_csv, to_latex, to_markdown, to_part
from vitinit.analysis.tables.table import Table
from vitinit.analysis.text import escape_latex, escape_markdown
from vitinit.benchmark.records.store import Layout, Store

MIMETIC = {0: 41.25, 1: 43.5, 2: 40.0, 7: 90.0}
BASE = {0: 40.0, 1: 39.0, 2: 42.75, 5: 10.0}


def cell(table: Table, row: str, column: str = "cifar10") -> dict[str, Any]:
    """The numbers of a cell that it has."""
    lines = table.numbers[(table.numbers["row"] == row) & (table.numbers["column"] == column)]
    return lines.iloc[0].dropna().to_dict()


def note(table: Table, beginning: str) -> str:
    (found,) = [line for line in table.notes if line.startswith(beginning)]
    return found


def test_mean_spread_and_paired_difference_by_seed(tmp_path: Path) -> None:
    for row, values in (("Mimetic", MIMETIC), ("Kaiming uniform", BASE)):
        write(tmp_path, *(done(row, (99.0, value), seed=seed) for seed, value in values.items()))
    study = load([tmp_path])
    table, ours = build(study, gain=True), cell(build(study), "Mimetic")
    assert (ours["n"], ours["mean"]) == (4, pytest.approx(statistics.mean(MIMETIC.values())))
    assert ours["std"] == pytest.approx(statistics.stdev(MIMETIC.values()))
    differences = [MIMETIC[seed] - BASE[seed] for seed in (0, 1, 2)]
    low, high = scipy_stats.ttest_1samp(differences, 0).confidence_interval()
    assert (ours["pairs"], ours["difference"]) == (3, pytest.approx(statistics.mean(differences)))
    assert (ours["difference_low"], ours["difference_high"]) == (pytest.approx(low), pytest.approx(high))
    assert table.texts.loc["Mimetic"].tolist() == ["53.7 ± 24.3", "+1.0 [−8.0, 10.0] (n=3)"]
    assert cell(build(study, metric="best"), "Mimetic")["mean"] == 99
    turned = cell(build(study, baseline="Mimetic"), "Kaiming uniform")
    assert turned["difference"] == pytest.approx(-ours["difference"])


def test_of_several_bases_the_one_with_the_rows_recipe_is_its_own(tmp_path: Path) -> None:
    for name, lr in (("A", 1e-3), ("B", 3e-3), ("C", 9e-3)):
        for row, kind in (("Kaiming uniform", "base"), ("Mimetic", "mimetic")):
            if (name, kind) != ("C", "base"):
                write(tmp_path, respecified(done(row, (50.0,), label=f"{name} {kind}"), recipe={"lr": lr}))
    table = build(load([tmp_path]))
    found = {row: cell(table, row)["baseline"] for row in ("A mimetic", "B mimetic", "C mimetic")}
    assert found == {"A mimetic": "A base", "B mimetic": "B base", "C mimetic": "A base"}
    assert "learning rate 0.001; A mimetic: " not in note(table, "cifar10 (50,000")
    assert "C mimetic in lr 0.009 (not 0.001)" in note(table, "More than the initialisation differs")


def test_bold_is_what_has_no_detectable_difference_from_the_best(tmp_path: Path) -> None:
    rows = {
        "Trunc normal": [10.0, 11.0, 12.0],
        "Mimetic": [50.0, 51.0, 52.5],
        "Imp.-3": [51.0, 49.0, 52.0],  # differs from Mimetic by less than its noise
        "Imp.-5": [49.0, 50.0, 51.5],  # always one below
        "Kaiming uniform": [99.0, 98.0],  # two seeds say nothing
    }
    study = load([several(tmp_path, rows)])
    assert {row for row, _ in build(study).bold} == {"Mimetic", "Imp.-3"}
    assert to_latex(build(study)).count(r"\textbf{51.2 $\pm$ 1.3}") == 1


def noted(root: Path) -> Path:
    """Runs of which there is much to say: published numbers, code, hardware, data, and what has no number."""
    code = {"commit": "a" * 40, "processor": "this one", "initializers": {"mimetic": "1" * 16}}
    other = {"commit": "b" * 40, "dirty": True, "processor": "that one", "initializers": {"mimetic": "2" * 16}}
    changed = {**code, "changed_while_running": [{"from_step": 7, "changed": {"python": ["3.10", "3.11"]}}]}
    rows = {"Kaiming uniform": [50.0, 51.0], "Mimetic": [90.0, 91.0, 92.0], "Imp.-3": [80.0, 80.5, 81.0]}
    for row, tops in rows.items():
        for seed, (top1, environment) in enumerate(zip(tops, (code, other, changed), strict=False)):
            write(root, done(row, (top1,), seed=seed, paper=True, environment=environment))
    write(root, *(failed("Imp.-5", seed=seed, paper=True) for seed in (2, 0)))
    write(root, skipped("ConViT", "does not fit", paper=True), skipped("Mimetic", dataset="svhn"))
    write(root, *(done("Trunc normal", (5.0,), dataset="digits", seed=seed, environment={}) for seed in (0, 1)))
    unlike = respecified(done("Kaiming uniform", (7.0,), dataset="digits"), recipe={"lr": 3e-3})
    data = unlike.dataset.model_copy(update={"checksum": "1" * 64})
    write(root, unlike.model_copy(update={"dataset": data}))
    Store(root).write_layout("small", Layout(rows=["Mimetic", "gone"]))
    (root / "small/notes.json").write_text("{}")
    return root


def test_a_whole_table_with_all_its_notes(tmp_path: Path) -> None:
    expected = Path(__file__).with_name("noted.md").read_text(encoding="utf-8")
    assert to_markdown(build(load([noted(tmp_path)]), gain=True), notes=True) == expected


# --- the comparisons that a grid names ---

ROWS = {
    "Kaiming uniform": [40.0, 41.0, 42.0, 43.0, 44.0, 45.0, 46.0, 47.0],
    "Mimetic": [43.0, 43.5, 45.0, 46.0, 46.0, 48.5, 49.0, 50.0],
    "Imp.-3": [40.5, 40.0, 42.5, 42.5, 44.5, 45.5, 45.0, 47.5],
}
CONTRASTS = [("Mimetic", "Kaiming uniform"), ("Imp.-3", "Kaiming uniform")]
FIRST = label(CONTRASTS[0])


def compared(root: Path, layout: Layout) -> Any:
    several(root, ROWS)
    Store(root).write_layout("small", layout)
    return load([root])


def test_named_comparisons_have_p_by_holm_and_the_pooled_interval(tmp_path: Path) -> None:
    study = compared(tmp_path, Layout(contrasts=CONTRASTS))
    table = build(study, "small_contrasts")
    by_hand = []
    for first, second in CONTRASTS:
        values = [(ours - theirs,) for ours, theirs in zip(ROWS[first], ROWS[second], strict=True)]
        result = scipy_stats.permutation_test(
            (values,), lambda x, axis: x.sum(axis=axis), permutation_type="samples", n_resamples=10_000
        )
        by_hand.append(float(result.pvalue[0]))
    assert [cell(table, label(pair))["p"] for pair in CONTRASTS] == pytest.approx(by_hand)
    assert cell(table, FIRST)["p_holm"] == pytest.approx(2 * by_hand[0])
    wide = pd.DataFrame(ROWS)
    noise = wide - wide.mean(axis=0) - wide.mean(axis=1).to_numpy()[:, None] + wide.to_numpy().mean()
    half = scipy_stats.t.ppf(0.975, 14) * ((noise**2).to_numpy().sum() / 14) ** 0.5 * (2 / 8) ** 0.5
    assert cell(table, FIRST)["pooled_high"] - cell(table, FIRST)["difference"] == pytest.approx(half)
    assert not build(study).numbers["p"].notna().any(), "p is in the table of contrasts alone"


def test_what_has_no_runs_yet_keeps_its_place_in_the_correction(tmp_path: Path) -> None:
    study = compared(tmp_path, Layout(contrasts=[*CONTRASTS, ("Imp.-5", "Mimetic")], columns=["cifar10", "svhn"]))
    found = contrasts(study)
    assert (found.size, found.tested[FIRST, "cifar10"].p) == (6, pytest.approx(6 * 2 / 256))
    assert "over 6 comparisons, which the grid names, 4 without runs yet;" in note(
        build(study, "small_contrasts"), "p: exact"
    )


def test_what_was_skipped_has_no_place_in_the_correction(tmp_path: Path) -> None:
    study = compared(tmp_path, Layout(contrasts=CONTRASTS))
    write(tmp_path, done("Kaiming uniform", dataset="digits"), skipped("Mimetic", dataset="digits"))
    assert contrasts(load([tmp_path])).size == 3, "Imp.-3 on digits may come, Mimetic on digits cannot"
    assert contrasts(study).size == 2


def test_over_training_each_epoch_has_the_differences_of_its_own(tmp_path: Path) -> None:
    tops = {
        "Mimetic": [tuple(10.0 * epoch for epoch in range(1, 8)), tuple(11.0 * epoch for epoch in range(1, 8))],
        "Kaiming uniform": [tuple(8.0 * epoch for epoch in range(1, 8))] * 2,
    }
    several(tmp_path, tops)
    Store(tmp_path).write_layout("small", Layout(contrasts=CONTRASTS[:1]))
    table = build(load([tmp_path]), "small_epochs")
    assert list(dict.fromkeys(table.numbers["column"])) == [f"epoch {epoch}" for epoch in (1, 2, 4, 5, 7)]
    assert cell(table, FIRST, "epoch 4")["difference"] == pytest.approx(4 * 2.5)


# --- ConViT's tables, and scaling ---


def test_a_gap_is_relative_by_seed(tmp_path: Path) -> None:
    tops = {
        ("DeiT", 500): [20.0, 30.0, 50.0],
        ("ConViT", 500): [25.0, 45.0],
        ("DeiT", 1000): [0.0],
        ("ConViT", 1000): [30.0],
    }
    for (row, size), values in {**tops, ("DeiT", 2500): [80.0]}.items():
        for seed, top1 in enumerate(values):
            write(tmp_path, run("efficiency", row, top1, dataset="cifar10", train_size=size, seed=seed))
    table = build(load([tmp_path]), "efficiency_gap")
    gap = cell(table, "cifar10[500]", "ConViT: gap (%)")
    assert (gap["n"], gap["mean"], gap["std"]) == (2, pytest.approx(37.5), pytest.approx(statistics.stdev([25, 50])))
    assert table.texts.loc["cifar10[500]", ("ConViT: gap (%)", "")] == "+37.5 ± 17.7 (n=2)"
    assert "mean" not in cell(table, "cifar10[1000]", "ConViT: gap (%)"), "relative to nought"


def test_switches_are_those_of_the_model_and_masks_leave_terms_out(tmp_path: Path) -> None:
    study = "convit-ablation-small"
    for row in ("c no conv init", "e DeiT"):
        write(tmp_path, run(study, row, 40.0, dataset="cifar10"))
    for seed, content in enumerate((10.0, 14.0)):
        convit = run(study, "a ConViT", 40.0 + seed, dataset="cifar10", seed=seed)
        write(tmp_path, masked(convit, content_1=content))
    found = load([tmp_path])
    texts = build(found, f"{study}_switches").texts
    assert ["".join(texts.iloc[:, :4].loc[row]) for row in ("c no conv init", "e DeiT")] == ["✓✗✓✓", "✗✗✗✗"]
    table = build(found, f"{study}_masked")
    assert [cell(table, "a ConViT", column)["mean"] for column in ("whole", "no content, 50%")] == [40.5, 12]


def test_gains_over_an_axis_and_their_slope(tmp_path: Path) -> None:
    gains = {48: (6.0, 7.0, 8.0), 96: (4.0, 4.5, 5.0), 192: (3.0, 2.0, 1.0)}
    for width, its in gains.items():
        for seed, gain in enumerate(its):
            for row, top1 in (("Kaiming uniform", 40.0 + seed), ("Mimetic", 40.0 + seed + gain)):
                one = spec(row, seed=seed, epochs=1, width=width)
                write(tmp_path, finished(one, [top1], study="wide", row=f"{row}, width {width}"))
    table = build(load([tmp_path]), "wide_scaling")
    assert cell(table, "Mimetic", "width 96")["difference"] == pytest.approx(4.5)
    # over three widths, each twice the one before, a least-squares slope is (last - first) / 2
    assert cell(table, "Mimetic", "gain per doubling")["mean"] == pytest.approx((-3 - 5 - 7) / 2 / 3)


# --- formats ---

NASTY = r"a_b%#&{}~^\$ [x] |<>| ± −1 é 好 --study"


def test_names_in_records_are_never_markup(tmp_path: Path) -> None:
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
    name = "<script>x</script> a|b *c* `d`"
    rows = (done("Mimetic", label=name), done("Trunc normal", label=NASTY), failed("Imp.-3", message="<b>&"))
    table = build(load([write(tmp_path, *rows)]))
    assert f">{html.escape(name)}</th>" in to_part(table)
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in lines} == {3}
    assert escape_markdown(name) in to_markdown(table)
    assert f"{escape_latex(NASTY)} & " in to_latex(table)


def test_pandas_reads_the_csv_as_it_was_written(tmp_path: Path) -> None:
    rows = [done(row, label=name) for row, name in (("Mimetic", "None"), ("Imp.-3", "NA"), ("Imp.-5", 'a "b", c'))]
    table = build(load([write(tmp_path, *rows)]))
    read = pd.read_csv(io.StringIO(to_csv(table)), keep_default_na=False, na_values=[""])
    assert sorted(read["row"]) == sorted(["None", "NA", 'a "b", c'])
    pd.testing.assert_frame_equal(read, table.numbers, check_dtype=False, rtol=1e-9)


def test_latex_is_a_table_a_wide_one_or_a_long_one_in_papers_words(tmp_path: Path) -> None:
    root = several(tmp_path, {"Kaiming uniform": [50.0, 51.0], "Mimetic": [52.0, 53.0]}, train_size=5000)
    narrow = to_latex(build(load([root])))
    assert r"\begin{table}[tbp]" in narrow
    assert "\\caption{Top-1 accuracy (\\%) on CIFAR-10 (5,000) after the last epoch, mean and standard" in narrow
    for dataset in ("cifar100", "svhn", "digits"):
        several(root, {"Kaiming uniform": [50.0, 51.0], "Mimetic": [52.0, 53.0]}, dataset=dataset)
    wide = to_latex(build(load([root]), gain=True))
    assert wide.count(r"\begin{table*}[tbp]") == wide.count(r"\resizebox") == wide.count(r"\end{tabular}}") == 1
    assert re.findall(r"\\cmidrule\(lr\)\{(.*?)\}", wide) == ["2-3", "4-5", "6-7", "8-9"]
    write(root, *(done("Imp.-3", label=f"scans-2024, model-{number:05}", seed=number) for number in range(60)))
    long = to_latex(build(load([root])))
    assert r"\begin{longtable}" in long
    assert "scans-2024, model-00012" in long


@pytest.mark.parametrize("name", ["small", "standard", "convit-efficiency-small", "convit-ablation-small", "length"])
def test_every_table_of_committed_studies_is_in_every_format_and_for_any_baseline(name: str) -> None:
    study = load([Path(__file__).parents[2] / "results/reference"], name)
    for table, baseline in product(names(study), (None, study.rows[0])):
        built = build(study, table, baseline=baseline, gain=True)
        assert len(built.texts)
        for _, write_as in FORMATS.values():
            text = write_as(built, True)
            assert text.endswith("\n")
            assert all(line.isprintable() for line in text.split("\n"))


# --- the command ---


def test_the_command_writes_its_tables_and_prints_a_reading(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    root = several(
        tmp_path / "records", {"Kaiming uniform": [40.0, 41, 42], "Mimetic": [45.0, 47, 49], "Imp.-3": [40] * 3}
    )
    monkeypatch.setenv("COLUMNS", "80")
    asked = ["--results", str(root), "--out", str(tmp_path / "out"), "--format", "markdown,csv"]
    assert tables.main(asked) == 0
    printed = " ".join(capsys.readouterr().out.split())
    low, high = scipy_stats.ttest_1samp([5.0, 6.0, 7.0], 0).confidence_interval()
    said = f"Mimetic by +6.00 (95 % CI +{low:.2f} to +{high:.2f}); losses: none."
    assert f"On cifar10, gains (uncorrected 95 % intervals): {said}" in printed
    lines = (tmp_path / "out/small.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines[4:]] == ["| Kaiming uniform", "| Mimetic", r"| Imp.-3"]


def test_a_wide_table_is_printed_in_panels_that_fit(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    root = everything(tmp_path)
    assert tables.main(["--results", str(root), "--out", str(tmp_path / "out"), "--gain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "vitinit.analysis" not in line and "tables as" not in line) <= 80
    assert len([line for line in lines if line.startswith("Imp.-3 ")]) > 1
