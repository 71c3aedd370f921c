"""Tables: numbers recomputed by hand, what is bold, flagged and corrected, what the foot says."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest
from scipy import stats as scipy_stats
from synthetic_records import ROWS, done, everything, failed, respecified, several, write
from table_texts import entry

from vitinit.analysis.frame import load
from vitinit.analysis.tables import __main__ as tables
from vitinit.analysis.tables.printing.reading import without_numbers
from vitinit.analysis.tables.registry import build
from vitinit.analysis.tables.render import to_latex
from vitinit.benchmark.records.store import Layout, Store

MIMETIC = {0: 41.25, 1: 43.5, 2: 40.0, 7: 90.0}
BASE = {0: 40.0, 1: 39.0, 2: 42.75, 5: 10.0}


def paired(root: Path) -> Path:
    for row, values in (("Mimetic", MIMETIC), ("Kaiming uniform", BASE)):
        write(root, *(done(row, (99.0, value), seed=seed) for seed, value in values.items()))
    return root


def test_mean_std_and_paired_difference(tmp_path):
    table = build(load([paired(tmp_path)]))
    cell = table.cells["Mimetic", "cifar10"]
    assert cell.ours.n == 4
    assert cell.ours.mean == pytest.approx(statistics.mean(MIMETIC.values()))
    assert cell.ours.std == pytest.approx(statistics.stdev(MIMETIC.values()))
    common = sorted(MIMETIC.keys() & BASE.keys())
    differences = [MIMETIC[seed] - BASE[seed] for seed in common]
    expected = scipy_stats.ttest_1samp(differences, 0).confidence_interval()
    assert (cell.against.n, cell.against.mean) == (3, pytest.approx(statistics.mean(differences)))
    assert (cell.against.interval.low, cell.against.interval.high) == pytest.approx((expected.low, expected.high))
    assert entry(table, "Mimetic").ours == ["53.69 ± 24.25", "+1.00 [−8.02, 10.02] (n=3)"]
    assert "Differences over fewer seeds than n: Mimetic on cifar10 (3)." in table.notes
    assert entry(table, "Kaiming uniform").ours[1:] == []


def test_metric_and_baseline(tmp_path):
    study = load([write(paired(tmp_path), failed("Imp.-3"))])
    best = build(study, metric="best").cells["Mimetic", "cifar10"].ours
    assert (best.mean, best.std) == (99.0, 0.0)
    turned = build(study, baseline="Mimetic").cells["Kaiming uniform", "cifar10"]
    assert turned.against.mean == pytest.approx(-build(study).cells["Mimetic", "cifar10"].against.mean)
    missing = "No differences: the baseline row Imp.-3 has no finished run."
    assert missing in build(study, baseline="Imp.-3").notes


def test_the_papers_differences_are_to_its_own_numbers_of_the_same_row(tmp_path):
    study = load([several(tmp_path, {row: (50.0, 51.0, 52.0) for row in ROWS}, paper=True)])
    assert entry(build(study), "Mimetic").paper == ["91.16", "+4.80"]
    assert entry(build(study, baseline="Trunc normal"), "Mimetic").paper == ["91.16", "+2.53"]
    assert entry(build(study), "Trunc normal").paper == ["88.63"]
    assert entry(build(study), "ConViT").paper == []
    other = several(tmp_path / "other", {"Kaiming uniform": (50.0,), "Imp.-3": (51.0,)}, paper=True, study="table6")
    numbers = [entry(build(load([other])), row).paper for row in ("Kaiming uniform", "Imp.-3")]
    assert numbers == [["86.36"], ["90.75"]], "of Table 2 and of Table 6"


def test_one_seed_has_no_spread_and_no_base_no_difference(tmp_path):
    table = build(load([write(tmp_path, done("Mimetic", (50.0,)))]))
    assert entry(table, "Mimetic") == (["50.00"], [], False)
    two = several(tmp_path / "two", {"Kaiming uniform": [1.0, 2.0], "Mimetic": [3.0, 5.0]})
    assert entry(build(load([two])), "Mimetic").ours == ["4.00 ± 1.41", "+2.50"], "two pairs have no interval"
    why = "No difference (--baseline ROW gives one), as no row has their base and model without a method: Mimetic."
    assert why in table.notes


def test_of_several_bases_the_one_with_the_rows_recipe_is_its_own(tmp_path):
    rows = (("A", 1e-3), ("B", 3e-3), ("C", 9e-3))
    for name, lr in rows:
        for row, label in (("Kaiming uniform", "base"), ("Mimetic", "mimetic")):
            if (name, label) != ("C", "base"):
                write(tmp_path, respecified(done(row, (50.0,), label=f"{name} {label}"), recipe={"lr": lr}))
    found = build(load([tmp_path])).baselines
    assert found == {"A mimetic": "A base", "B mimetic": "B base", "C mimetic": "A base"}


def test_learning_rates_that_rows_do_not_share_are_said(tmp_path):
    write(tmp_path, done("Kaiming uniform", (50.0,)), respecified(done("Mimetic", (50.0,)), recipe={"lr": 3e-3}))
    (note,) = [note for note in build(load([tmp_path])).notes if note.startswith("cifar10 (50,000 training images)")]
    assert re.search(r"1 epoch, learning rate 0\.001; Mimetic: .*1 epoch, learning rate 0\.003\.$", note)


def test_bold_is_what_is_not_told_apart_from_the_best(tmp_path):
    rows = {
        "Trunc normal": [10.0, 11.0, 12.0],
        "Mimetic": [50.0, 51.0, 52.5],
        "Imp.-3": [51.0, 49.0, 52.0],  # differs from Mimetic by less than its noise
        "Imp.-5": [49.0, 50.0, 51.5],  # always one below
        "Kaiming uniform": [99.0, 98.0],  # two seeds say nothing
    }
    table = build(load([several(tmp_path, rows)]))
    assert [row for row in table.rows if entry(table, row).bold] == ["Mimetic", "Imp.-3"]
    latex = to_latex(table)
    assert r"\textbf{51.2 $\pm$ 1.3}" in latex
    assert latex.count(r"\textbf") == 2


def test_what_has_no_seeds_in_common_with_the_highest_is_not_said_to_be_told_apart(tmp_path):
    rows = {"Mimetic": range(3), "Kaiming uniform": range(3, 6)}
    write(tmp_path, *(done(row, (50.0 + seed,), seed=seed) for row, seeds in rows.items() for seed in seeds))
    (note,) = [note for note in build(load([tmp_path])).notes if note.startswith("Not compared with the highest mean")]
    assert note.endswith("share under 3 seeds: Mimetic on cifar10.")


def test_a_dagger_where_our_interval_excludes_the_published_number(tmp_path):
    values = {"Mimetic": [90.0, 91.0, 92.0], "Imp.-3": [80.0, 80.5, 81.0], "Imp.-5": [80.0, 80.5]}
    table = build(load([several(tmp_path / "paper", values, paper=True)]))
    first = {row: entry(table, row).ours[0] for row in table.rows}
    assert first == {"Mimetic": "91.00 ± 1.00", "Imp.-3": "80.50 ± 0.50†", "Imp.-5": "80.25 ± 0.35 (n=2)"}
    assert any(note.startswith("†") for note in table.notes)
    small = build(load([several(tmp_path / "small", values)]))
    assert not any("†" in line for row in small.rows for line in entry(small, row).ours), "another setting"
    assert not any(note.startswith(("†", "Paper")) for note in small.notes)


def test_a_deleted_record_changes_only_its_cells(tmp_path):
    root = everything(tmp_path)
    before = build(load([root]))
    lost = done("Imp.-3", (0.0, 0.0, 0.0), dataset="digits", seed=1)
    (root / "small" / f"{lost.run_id}.json").unlink()
    after = build(load([root]))
    assert before.cells.keys() == after.cells.keys()
    assert [key for key in before.cells if before.cells[key] != after.cells[key]] == [("Imp.-3", "digits")]
    assert after.cells["Imp.-3", "digits"].ours.n == 2


def test_a_cell_without_runs_is_a_dash_and_a_run_that_failed_stands_beside_the_published_number(tmp_path):
    root = write(tmp_path, done("Trunc normal", (5.0,), paper=True), done("Mimetic", dataset="digits"))
    table = build(load([write(root, failed("Imp.-3", paper=True))]))
    assert entry(table, "Mimetic")[:2] == (["–"], []), "its setting is not known"
    assert entry(table, "Imp.-3")[:2] == (["–"], ["91.62"])
    assert (entry(table, "Trunc normal").paper, entry(table, "Trunc normal", "digits").paper) == (["88.63"], [])
    (context,) = (note for note in table.notes if note.startswith("Context"))
    assert "has CIFAR-10: Kaiming Uniform 86.36, Mimetic 91.16, Imp.-5 90.67 (results/published/2404" in context
    missing = "No finished run: Trunc normal on digits, Imp.-3 on digits, Mimetic on cifar10, Imp.-3 on cifar10."
    assert missing in table.notes


def test_code_of_an_initialiser_that_changed_between_runs_is_said_with_its_rows(tmp_path):
    base = {"kaiming_uniform": "0" * 16}
    write(tmp_path, done("Kaiming uniform", environment={"initializers": base}))

    def foot(*sources: str) -> list[str]:
        for seed, its in enumerate(sources):
            environment = {"initializers": base | {"mimetic": its * 16}} if its else {}
            write(tmp_path, done("Mimetic", seed=seed, environment=environment))
        table = build(load([tmp_path]))
        assert set(without_numbers(table)) <= set(table.notes)
        return without_numbers(table)

    assert foot("1", "1", "") == [], "unknown is not another"
    assert foot("1", "2") == ["Mixed code of mimetic: rows Mimetic hold runs of 2 versions of its file."]


@pytest.mark.parametrize(
    ("environments", "says"),
    [
        ([{"commit": "a" * 40}, {"commit": "b" * 40}], "mixed commits aaaaaaaaaa, bbbbbbbbbb."),
        ([{"commit": "a" * 40, "dirty": True}, {"commit": "a" * 40}], "1 of 2 runs from a tree with uncommitted"),
        ([{}, {}], "commit unknown."),
        ([{"processor": "this one"}, {"processor": "that one"}], "Mixed: hardware (that one, this one)."),
        ([{"commit": "a" * 40}, {"commit": None}], "commit aaaaaaaaaa (1 run without one)."),
        ([{"changed_while_running": [{"from_step": 7, "changed": {"python": ["3.10", "3.11"]}}]}, {}], "1 run went on"),
    ],
)
def test_code_and_hardware_of_runs_are_said(tmp_path, environments, says):
    write(tmp_path, *(done("Mimetic", seed=seed, environment=each) for seed, each in enumerate(environments)))
    assert says in "\n".join(build(load([tmp_path])).notes)


def test_runs_of_one_seed_on_other_data_are_not_comparable(tmp_path):
    """Images that are drawn by the seed differ between seeds, and in no seed."""

    def on(row, seed, checksum):
        record = done(row, seed=seed)
        return record.model_copy(update={"dataset": record.dataset.model_copy(update={"checksum": checksum * 64})})

    def warned():
        return [note for note in build(load([tmp_path])).notes if "checksums differ" in note]

    write(tmp_path, *(on(row, seed, str(seed)) for row in ("Kaiming uniform", "Mimetic") for seed in (0, 1)))
    assert warned() == []
    write(tmp_path, on("Imp.-3", 1, "2"))
    assert warned() == ["Not comparable: the runs on cifar10 read different data (checksums differ)."]


def test_all_tables_of_all_studies_in_every_format(tmp_path, capsys):
    root = tmp_path / "records"
    for size in (500, 1000, 2500):
        several(root, {"Kaiming uniform": [1.0], "Mimetic": [2.0]}, study="table2", train_size=size)
    write(root, done("Mimetic", (1.0,), study="mine"), failed("Mimetic", study="broken"))
    arguments = ["--results", str(root), "--out", str(tmp_path / "out")]
    assert tables.main([*arguments, "--format", "latex,csv", "--format", "html"]) == 0
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")}
    stems = ("mine/mine", "table2/table2", "table2/table2_gap", "table2/table2_scaling")
    assert found == {f"{stem}.{ending}" for stem in stems for ending in ("tex", "csv", "html")}
    assert "\nno table, no run is finished" in capsys.readouterr().out
    assert tables.main([*arguments[:2], "--out", str(tmp_path / "one"), "--table", "table2_gap"]) == 0
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["table2_gap.tex"]


def test_rows_are_those_that_are_asked_for(tmp_path):
    values = {"Kaiming uniform": [10.0, 11.0, 13.0], "Mimetic": [50.0, 51.0, 52.5], "Imp.-3": [20.0, 21.0, 22.0]}
    root = several(tmp_path / "records", values)
    Store(root).write_layout("small", Layout(rows=list(values)))
    arguments = ["--results", str(root), "--out", str(tmp_path / "out"), "--format", "latex,csv"]

    def written(*options: str) -> list[str]:
        assert tables.main([*arguments, *options]) == 0
        latex = (tmp_path / "out/small.tex").read_text()
        rows = re.search(r"midrule\n(.*)\\bottomrule", latex, re.DOTALL)[1].splitlines()
        return [row.removesuffix(r" \\") for row in rows]

    assert [row.partition(" &")[0] for row in written("--rows", "Imp.-3", "Mimetic")] == ["Imp.-3", "Mimetic"]
    assert [row.partition(" &")[0] for row in written("--rows", "Mim*", "Imp*")] == ["Mimetic", "Imp.-3"]
    assert len((tmp_path / "out/small.csv").read_text().splitlines()) == 3
