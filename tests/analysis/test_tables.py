"""Tables: numbers recomputed by hand, what is bold, tested and noted, and every format."""

import html
import io
import json
import re
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats as scipy_stats
from synthetic_records import dense, done, failed, laid_out, respecified, several, skipped, write

from tests.records import REFERENCE, study
from vitinit.analysis.comparison import compare, named
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.frame import load
from vitinit.analysis.pages.facts import Facts
from vitinit.analysis.pages.render import page
from vitinit.analysis.tables.registry import build
from vitinit.analysis.tables.render import to_csv, to_latex, to_markdown, to_part
from vitinit.analysis.text import escape_latex, escape_markdown
from vitinit.initializers.errors import VitinitError

MIMETIC = {0: 41.25, 1: 43.5, 2: 40.0, 7: 90.0}
BASE = {0: 40.0, 1: 39.0, 2: 42.75, 5: 10.0}


def cell(table, row, column="cifar10"):
    """The numbers of a cell that it has."""
    return table.frame.query("row == @row and column == @column").iloc[0].dropna().to_dict()


def note(table, beginning):
    (found,) = [line for line in table.notes if line.startswith(beginning)]
    return found


def test_mean_spread_and_paired_difference_by_seed(tmp_path):
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
    assert cell(build(study.by("best")), "Mimetic")["mean"] == 99
    turned = cell(build(replace(study, baseline="Mimetic")), "Kaiming uniform")
    assert turned["difference"] == pytest.approx(-ours["difference"])


# --- committed studies, from their files by pandas alone ---


def means(lines):
    """Means of lines of row, column and value."""
    table = pd.DataFrame(lines, columns=["row", "column", "mean"]).dropna()
    return table.groupby(["row", "column"])["mean"].mean()


def assert_shown(name, table, expected):
    """Compare the means of these cells."""
    numbers = build(load([REFERENCE], name), f"{name}_{table}").frame.dropna(subset="mean")
    assert len(expected) > 9
    means = numbers.set_index(["row", "column"])["mean"].loc[expected.index]
    pd.testing.assert_series_equal(means, expected, check_dtype=False)


STUDIES = sorted(path.parent.name for path in REFERENCE.glob("*/LAYOUT") if "tuning" not in path.parent.name)


@pytest.mark.parametrize("name", STUDIES)
def test_main_tables_have_runs_whose_spec_is_the_same_but_for_the_seed(name):
    done = study(name).runs["record"]
    frame = pd.DataFrame([record["history"][-1] for record in done]).filter(regex="^(test|val)_(top1|miou)$")
    frame = frame.bfill(axis=1).iloc[:, :1].set_axis(["score"], axis=1)
    frame["row"] = [record["row"] for record in done]
    frame["spec"] = [json.dumps(record["spec"] | {"seed": 0}, sort_keys=True) for record in done]
    expected = frame.groupby(["row", "spec"])["score"].agg(["count", "mean", "std"]).reset_index("row")
    cells = build(load([REFERENCE], name)).frame.query("n > 0")[["row", "n", "mean", "std"]]
    cells, expected = (frame.sort_values(list(frame), ignore_index=True) for frame in (cells, expected))
    pd.testing.assert_frame_equal(cells, expected.set_axis(cells.columns, axis=1), check_dtype=False)


def test_accuracy_without_a_term_and_what_is_switched_on():
    masked, switches = [], {}
    for run in study("convit-ablation-small").runs["record"]:
        for removal in run["masked"] or ():
            share = 100 * removal["layers"] / run["spec"]["model"]["gpsa_layers"]
            masked.append((run["row"], f"no {removal['term']}, {share:.0f}%", removal["top1"]))
            masked.append((run["row"], "whole", removal["top1_whole"]))
        method = run["spec"]["method"]
        if method and method["name"] == "convit_gpsa":
            for label in ("train gating", "conv init"):
                switches[run["row"], label] = method["params"].get(label.replace(" ", "_"), True)
    assert_shown("convit-ablation-small", "masked", means(masked))
    numbers = build(load([REFERENCE], "convit-ablation-small"), "convit-ablation-small_switches").frame
    switched = numbers.set_index(["row", "column"])["switch"].to_dict()
    assert {key: switched[key] for key in switches} == switches
    assert {*switches.values()} == {True, False}


def test_attention_on_the_target_and_the_norms_of_queries():
    lines = []
    for run in study("small").runs["record"]:
        if run["spec"]["dataset"]["name"] == "digits":
            init, row = run["init"], run["row"]
            for name, part in (("pseudo-input", "pseudo_input"), ("images", "real_images")):
                mass = 100 * init[part]["mass"] if init[part] else None
                lines.append((row, f"digits: on target, {name} (%)", mass))
            queries = init["norms"][0]["query"] if init["norms"] else [np.nan]
            lines.append((row, "digits: norm of W_q", statistics.fmean(queries)))
    assert_shown("small", "initialization", means(lines))


def test_gaps_are_in_percent_of_the_base_at_each_seed():
    score = {}
    for run in study("convit-efficiency-small").runs["record"]:
        where = f"cifar10[{run['spec']['dataset']['train_size']}]"
        score[where, run["row"], run["spec"]["seed"]] = run["history"][-1]["test_top1"]
    gaps = [(where, f"{row}: gap (%)", 100 * (ours / score[where, "DeiT", seed] - 1))
        for (where, row, seed), ours in score.items() if row != "DeiT"]  # fmt: skip
    ours = [(where, row, value) for (where, row, _), value in score.items()]
    assert_shown("convit-efficiency-small", "gap", means(gaps + ours))


def test_the_gain_per_doubling_is_a_slope_over_the_logarithm(tmp_path):
    epochs, runs = [5, 20, 80, 160], study("length")
    gains = [runs.gain(f"Mimetic, {n} epochs", f"Kaiming uniform, {n} epochs").mean() for n in epochs]
    slope = scipy_stats.linregress(np.log2(epochs), gains).slope
    length = load([REFERENCE], "length")
    table = build(length, "length_scaling")
    doubling = cell(table, "Mimetic", "gain per doubling")
    assert (doubling["mean"], doubling["p"]) == (
        pytest.approx(slope),
        Facts(length).contrast("Mimetic, slope per doubling").p,
    )
    assert cell(table, "Mimetic", "epochs 80")["difference"] == pytest.approx(gains[2])
    for size in (500, 1000, 2000):
        several(tmp_path, {"Kaiming uniform": [40.0, 41.0], "Mimetic": [45.0, 46.0 + size / 500]}, train_size=size)
    table = build(load([tmp_path]), "small_scaling")
    assert cell(table, "Mimetic", "training images 1,000")["difference"] == pytest.approx(6.0)
    assert cell(table, "Mimetic", "gain per doubling")["mean"] == pytest.approx((7.0 - 5.5) / 2)


# --- synthetic ones ---


def test_two_metrics_in_one_column_are_refused(tmp_path):
    write(tmp_path, dense("Mimetic", (40.0,)), done("Mimetic", (60.0,), dataset="shapes", seed=7, study="masks"))
    with pytest.raises(VitinitError, match="study 'masks': runs on shapes are measured by .*mean IoU"):
        build(load([tmp_path]))


def test_bases_and_placebos_are_those_with_the_rows_recipe_and_a_control_that_which_the_grid_names(tmp_path):
    write(tmp_path, done("Imp.-3", (50.0,)), done("Imp.-5", (50.0,)))
    laid_out(tmp_path, placebos={"Imp.-3": "B mimetic", "Imp.-5": "B mimetic"})
    for name, lr in (("A", 1e-3), ("B", 3e-3), ("C", 9e-3)):
        for row, kind in (("Kaiming uniform", "base"), ("Mimetic", "mimetic"), ("Placebo of Mimetic", "spectrum")):
            if (name, kind) != ("C", "base"):
                write(tmp_path, respecified(done(row, (50.0,), label=f"{name} {kind}"), recipe={"lr": lr}))
    table = build(load([tmp_path]))
    grid = FIGURES.get("forest").figures(table.study)["forest"]
    drawn, (axes,) = grid.data, grid.axes.values()
    placebos = {(f"{name} mimetic", f"{name} spectrum", "spectrum") for name in "ABC"} | {
        ("B mimetic", "Imp.-3", "own")
    }
    assert {*zip(drawn["label"], drawn["row"], drawn["keeps"], strict=True)} >= placebos
    assert len(axes.containers) == drawn["row"].nunique(), "a point each"
    found = {row: cell(table, row)["baseline"] for row in ("A mimetic", "B mimetic", "C mimetic")}
    assert found == {"A mimetic": "A base", "B mimetic": "B base", "C mimetic": "A base"}
    assert "learning rate 0.001; A mimetic: " not in note(table, "CIFAR-10 (50,000")
    assert "C mimetic, C spectrum in lr 0.009 (not 0.001)" in note(table, "More than the initialisation differs")


def test_bold_is_what_has_no_detectable_difference_from_the_best(tmp_path):
    rows = {
        "Trunc normal": [10.0, 11.0, 12.0],
        "Mimetic": [50.0, 51.0, 52.5, 20.0],  # at a seed that no other row has
        "Imp.-3": [51.0, 49.0, 52.0],  # differs from Mimetic by less than its noise
        "Imp.-5": [49.0, 50.0, 51.5],  # always one below
        "Kaiming uniform": [99.0, 98.0],  # two seeds say nothing
    }
    several(tmp_path, dict.fromkeys(("Mimetic", "Imp.-3"), [100.0] * 3), dataset="digits")
    study = load([several(tmp_path, rows)])
    assert build(study).bold == {(row, (name, "")) for row in ("Mimetic", "Imp.-3") for name in study.names.values()}
    assert to_latex(build(study)).count(r"\textbf{43.4 $\pm$ 15.6 (n=4)}") == 1


ENVIRONMENTS = """
- &code
  commit: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
  processor: this one
  initializers: {mimetic: "1111111111111111"}
- commit: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
  dirty: true
  processor: that one
  initializers: {mimetic: "2222222222222222"}
- {<<: *code, changed_while_running: [{from_step: 7, changed: {python: ["3.10", "3.11"]}}]}
"""


def noted(root):
    """Runs of which there is much to say: published numbers, code, hardware, data, and what has no number."""
    rows = {"Kaiming uniform": [50.0, 51.0], "Mimetic": [90.0, 91.0, 92.0], "Imp.-3": [80.0, 80.5, 81.0]}
    for row, tops in rows.items():
        for seed, (top1, environment) in enumerate(zip(tops, yaml.safe_load(ENVIRONMENTS), strict=False)):
            write(root, done(row, (top1,), seed=seed, paper=True, environment=environment))
    write(root, *(failed("Imp.-5", seed=seed, paper=True) for seed in (2, 0)))
    write(root, skipped("ConViT", "does not fit", paper=True), skipped("Mimetic", dataset="svhn"))
    write(root, *(done("Trunc normal", (5.0,), dataset="digits", seed=seed, environment={}) for seed in (0, 1)))
    unlike = respecified(done("Kaiming uniform", (7.0,), dataset="digits"), recipe={"lr": 3e-3})
    data = unlike.dataset.model_copy(update={"checksum": "1" * 64})
    write(root, unlike.model_copy(update={"dataset": data}))
    laid_out(root, rows=["Mimetic", "gone"])
    (root / "small/notes.json").write_text("{}")
    return root


def test_a_whole_table_with_all_its_notes(tmp_path):
    expected = Path(__file__).with_name("noted.md").read_text(encoding="utf-8")
    assert to_markdown(build(load([noted(tmp_path)]), gain=True), notes=True) == expected


# --- the comparisons that a grid names ---


def test_what_has_no_runs_yet_keeps_its_place_in_the_correction_and_what_was_skipped_has_none(tmp_path):
    ours = [43.0, 43.5, 45.0, 46.0, 46.0, 48.5, 49.0, 50.0]
    several(tmp_path, {"Kaiming uniform": range(40, 48), "Mimetic": ours, "Imp.-3": [40.5, *range(40, 47)]})
    contrasted = [("Mimetic", "Kaiming uniform"), ("Imp.-3", "Kaiming uniform"), ("Imp.-5", "Mimetic")]
    analysis = {"test": "sign_flip"}
    laid_out(tmp_path, contrasts=contrasted, columns=["cifar10", "svhn"], analysis=analysis)
    study = load([tmp_path])
    found = named(study)["Mimetic − Kaiming uniform", "cifar10"]
    assert (found.size, found.p) == (6, pytest.approx(6 * 2 / 256))
    assert "Holm over 6 comparisons that the grid names, 4 without a common seed." in note(
        build(study, "small_contrasts"), "Intervals:"
    )
    write(tmp_path, done("Kaiming uniform", dataset="digits"), skipped("Mimetic", dataset="digits"))
    found = named(load([tmp_path]))["Mimetic − Kaiming uniform", "cifar10"]
    assert found.size == 4, "on digits two of the three have a row that was skipped"
    laid_out(tmp_path, runs={"0" * 16: "Mimetic"})
    assert not named(load([tmp_path])), "the grid is of other data now"


def test_a_comparison_has_one_interval_and_one_p_wherever_it_stands(tmp_path):
    """Also where other rows have no spread; this one's interval excludes 0, and its corrected p does not."""
    tops = {"Kaiming uniform": [40.0, 42.0, 44.0, 46.0], "Mimetic": [41.0, 43.4, 44.2, 47.5], "Imp.-3": [40.0] * 4}
    several(tmp_path, {row: [[first - 9, first] for first in values] for row, values in tops.items()})
    several(tmp_path, {"Imp.-5": [100.0] * 4, "Trunc normal": [100.0] * 4})
    weights = {"Mimetic": 1, "Kaiming uniform": -1, "Imp.-3": -1, "Imp.-5": 1}
    contrasts = [("Mimetic", "Kaiming uniform"), ("Imp.-3", "Kaiming uniform"), {"name": "all", "weights": weights}]
    alone = {"name": "alone", "family": "second", "weights": {"Mimetic": 1, "Kaiming uniform": -1}}
    laid_out(tmp_path, contrasts=[*contrasts, alone])
    study = load([tmp_path])
    gains = [ours - theirs for ours, theirs in zip(tops["Mimetic"], tops["Kaiming uniform"], strict=True)]
    test = scipy_stats.ttest_1samp(gains, 0)
    (found, _, both, _), turned = named(study).values(), compare(study, ("Kaiming uniform", "Mimetic"), "cifar10")
    assert both.mean == pytest.approx(statistics.mean(gains) + 60)
    assert (found.low, found.high) == tuple(map(pytest.approx, test.confidence_interval()))
    assert (found.p, found.verdict) == (pytest.approx(2 * test.pvalue), "unconfirmed")
    assert (turned.low, turned.high, turned.p) == (-found.high, -found.low, found.p)
    assert Facts(study).contrast("alone").p == pytest.approx(test.pvalue), "in a family of its own"
    for ending, row, column in (("", "Mimetic", "cifar10"), ("_contrasts", found.name, "cifar10")):
        its = cell(build(study, "small" + ending), row, column)
        assert [its[name] for name in ("difference_low", "difference_high", "p")] == [found.low, found.high, found.p]
    epochs = [cell(build(study, "small_epochs"), found.name, f"epoch {epoch}").get("p") for epoch in (1, 2)]
    assert epochs == [None, found.p], "the grid names the last epoch"
    best = cell(build(study.by("best"), "small_contrasts"), found.name)
    assert (best["difference"], best.get("p")) == (found.mean, None), "and what it names is tested"
    assert f"{found.name}: {found}, {found.p_text}, n = 4: not shown, as it fails its test." in page(study)
    with pytest.raises(VitinitError, match="is above; the records give .*, p = 0.0"):
        _ = found.above


# --- formats ---

NASTY = r"a_b%#&{}~^\$ [x] |<>| ± −1 é 好 --study"


def test_names_in_records_are_never_markup(tmp_path):
    for text, latex in {
        "a_b%#&{}$": r"a\_b\%\#\&\{\}\$",
        "~^\\": r"\textasciitilde{}\textasciicircum{}\textbackslash{}",
        "±1 −2 × <|>": r"$\pm$1 $-$2 $\times$ \textless{}\textbar{}\textgreater{}",
        "[5000]*": "{[}5000{]}{*}",
        "a--b": "a-{}-b",
        "é 好": "é {[}U+597D{]}",
        "two\nlines\x1b[31m": "two lines?{[}31m",
    }.items():
        assert escape_latex(text) == latex
    name = "<script>x</script> a|b *c* `d`"
    rows = (done("Mimetic", label=name), done("Trunc normal", label=NASTY), failed("Imp.-3", message="<b>&"))
    table = build(load([write(tmp_path, *rows)]))
    assert f">{html.escape(name)}</th>" in to_part(table)
    lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in lines} == {3}
    assert escape_markdown(name) in to_markdown(table)
    assert f"{escape_latex(NASTY)} & " in to_latex(table)


def test_pandas_reads_the_csv_as_it_was_written(tmp_path):
    rows = [done(row, label=name) for row, name in (("Mimetic", "None"), ("Imp.-3", "NA"), ("Imp.-5", 'a "b", c'))]
    table = build(load([write(tmp_path, *rows)]))
    read = pd.read_csv(io.StringIO(to_csv(table)), keep_default_na=False, na_values=[""])
    assert sorted(read["row"]) == sorted(["None", "NA", 'a "b", c'])
    pd.testing.assert_frame_equal(read, table.frame, check_dtype=False, rtol=1e-9)


def test_latex_is_a_table_a_wide_one_or_a_long_one_in_papers_words(tmp_path):
    root = several(tmp_path, {"Kaiming uniform": [50.0, 51.0], "Mimetic": [52.0, 53.0]}, train_size=5000)
    narrow = to_latex(build(load([root])))
    assert r"\begin{table}[tbp]" in narrow
    assert "\\caption{Top-1 accuracy (\\%) on CIFAR-10 (5,000 images) after the last epoch, mean and standard" in narrow
    for dataset in ("cifar100", "svhn", "digits"):
        several(root, {"Kaiming uniform": [50.0, 51.0], "Mimetic": [52.0, 53.0]}, dataset=dataset)
    wide = to_latex(build(load([root]), gain=True))
    assert wide.count(r"\begin{table*}[tbp]") == 1
    assert r"\resizebox" not in wide
    assert re.findall(r"\\cmidrule\(lr\)\{(.*?)\}", wide) == ["2-3", "4-5", "2-3", "4-5"], "two below two"
    write(root, *(done("Imp.-3", label=f"scans-2024, model-{number:05}", seed=number) for number in range(60)))
    long = to_latex(build(load([root])))
    assert r"\begin{longtable}" in long
    assert "scans-2024, model-00012" in long
