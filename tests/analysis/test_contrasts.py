"""The comparisons that a grid names: their numbers by hand, and the place of each in Holm's correction."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest
from synthetic_records import done, several, skipped, write

from tests.records import sign_flip
from vitinit.analysis.frame import load
from vitinit.analysis.tables import contrasts
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import to_csv, to_markdown
from vitinit.analysis.tables.shared import Table
from vitinit.benchmark.records.store import Layout, Store

TOP1 = {
    "Kaiming uniform": [40.0, 41.0, 42.0, 43.0, 44.0, 45.0, 46.0, 47.0],
    "Mimetic": [45.0, 47.0, 45.0, 50.0, 48.0, 52.0, 49.0, 54.0],
    "Imp.-3": [40.5, 40.0, 43.0, 42.0, 45.0, 45.5, 45.0, 48.0],
}
CONTRASTS = [("Mimetic", "Kaiming uniform"), ("Mimetic", "Imp.-3"), ("Imp.-3", "Kaiming uniform")]
LARGEST = contrasts.label(CONTRASTS[0]), "cifar10"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    several(tmp_path, TOP1, study="mine")
    Store(tmp_path).write_layout("mine", Layout(rows=["Mimetic"], contrasts=CONTRASTS))
    return tmp_path


def table_of(root: Path, layout: Layout | None = None, name: str = "mine") -> Table:
    """With a grid of this layout and no other."""
    if layout:
        (root / "mine/LAYOUT").unlink(missing_ok=True)
        Store(root).write_layout("mine", layout)
    return build(load([root], "mine"), name)


def notes_of(table: Table, start: str) -> list[str]:
    return [note for note in table.notes if note.startswith(start)]


def test_differences_and_p_are_those_counted_by_hand(results: Path) -> None:
    assert "mine_contrasts" in names(load([results], "mine"))
    table = table_of(results, name="mine_contrasts")
    assert table.rows == [contrasts.label(pair) for pair in CONTRASTS]
    p = {}
    for pair in CONTRASTS:
        by_seed = [a - b for a, b in zip(TOP1[pair[0]], TOP1[pair[1]], strict=True)]
        p[pair] = sign_flip(pd.Series(by_seed))
        cell = table.cells[contrasts.label(pair), "cifar10"]
        assert cell.ours
        assert cell.ours.mean == pytest.approx(sum(TOP1[pair[0]]) / 8)
        assert cell.against
        assert cell.against.mean == pytest.approx(sum(by_seed) / 8)
        assert cell.against.p == pytest.approx(p[pair])
    # both contrasts of mimetic have the least p of 8 seeds, 2/256: Holm takes it three times, then no less
    assert p[CONTRASTS[0]] == p[CONTRASTS[1]] == 2 / 256
    corrected = [table.cells[contrasts.label(pair), "cifar10"].p for pair in CONTRASTS]
    assert corrected == pytest.approx([6 / 256, 6 / 256, p[CONTRASTS[2]]])


@pytest.mark.parametrize(
    ("layout", "p", "says"),
    [
        (Layout(contrasts=[("Imp.-5", "Mimetic")]), 4 * 2 / 256, "over 4 comparisons"),
        (
            Layout(contrasts=CONTRASTS, columns=["cifar10", "svhn"]),
            6 * 2 / 256,
            "over 6 comparisons, which the grid names, 3 without runs yet;",
        ),
    ],
    ids=["a contrast without runs", "a dataset without runs"],
)
def test_what_has_no_runs_yet_keeps_its_place_in_the_correction(results: Path, layout: Layout, p: float, says) -> None:
    """So that no p rises when they come; the grid had three comparisons before."""
    Store(results).write_layout("mine", layout)
    table = table_of(results, name="mine_contrasts")
    assert table.cells[LARGEST].p == pytest.approx(p)
    assert any(says in note for note in table.notes), table.notes


@pytest.mark.parametrize(("there", "gone"), [("Kaiming uniform", "Mimetic"), ("Mimetic", "Kaiming uniform")])
def test_a_comparison_that_cannot_be_made_has_no_place_in_the_correction(results: Path, there: str, gone: str) -> None:
    write(results, done(there, study="mine", dataset="digits"))
    write(results, skipped(gone, "does not fit", study="mine", dataset="digits"))
    table = table_of(results, name="mine_contrasts")
    assert table.cells[LARGEST].p == pytest.approx(4 * 2 / 256), "of six, two cannot be made"
    assert any("over 4 comparisons, which the grid names, 1 without runs yet;" in note for note in table.notes)
    assert table.cells[LARGEST[0], "digits"].against is None


def test_there_is_none_without_contrasts_nor_over_training_of_one_evaluation(results: Path) -> None:
    assert names(load([results], "mine")) == ["mine", "mine_contrasts"]
    (results / "mine" / "LAYOUT").unlink()
    assert names(load([results], "mine")) == ["mine"]


def test_over_training_each_epoch_has_the_differences_of_its_own(tmp_path: Path) -> None:
    tops = {  # after each of seven epochs, by seed; the second row has one seed more
        "Mimetic": [(10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0), (11.0, 22.0, 33.0, 44.0, 55.0, 66.0, 77.0)],
        "Kaiming uniform": [(9.0, 17.0, 25.0, 33.0, 41.0, 49.0, 57.0)] * 2 + [(90.0,) * 7],
    }
    several(tmp_path, tops, study="mine")
    layout = Layout(contrasts=[("Mimetic", "Kaiming uniform"), ("Imp.-3", "Mimetic")])
    table = table_of(tmp_path, layout, "mine_epochs")
    assert table.columns == ["epoch 1", "epoch 2", "epoch 4", "epoch 5", "epoch 7"], "five, first and last among them"
    for epoch in (1, 2, 4, 5, 7):
        first, second = (after[epoch - 1] for after in tops["Mimetic"])
        cell = table.cells["Mimetic − Kaiming uniform", f"epoch {epoch}"]
        assert cell.ours
        assert cell.ours.mean == pytest.approx((first + second) / 2)
        assert cell.against
        theirs = tops["Kaiming uniform"][0][epoch - 1]
        assert (cell.against.n, cell.against.mean) == (2, pytest.approx((first + second) / 2 - theirs))
        assert table.cells["Imp.-3 − Mimetic", f"epoch {epoch}"].ours is None
    lines = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert {line["p"] for line in lines} == {line["p_holm"] for line in lines} == {""}


def test_over_training_no_number_that_exists_is_left_out_and_rows_that_are_not_compared_add_none(
    tmp_path: Path,
) -> None:
    several(tmp_path, {row: [tuple(range(1, 11))] for row in TOP1}, study="mine")
    several(tmp_path, {row: [tuple(range(1, 7))] for row in TOP1}, study="mine", dataset="digits")
    write(tmp_path, done("Imp.-5", (10.0,) * 20, study="mine"))
    table = table_of(tmp_path, Layout(contrasts=CONTRASTS), "mine_epochs")
    assert table.columns == [f"epoch {epoch}" for epoch in (1, 2, 3, 4, 5, 6, 7, 10)]
    places = ("digits", "cifar10")
    assert sorted(table.rows) == sorted(f"{contrasts.label(pair)}, {place}" for pair in CONTRASTS for place in places)
    for (row, column), cell in table.cells.items():
        there = "digits" not in row or int(column.removeprefix("epoch ")) <= 6
        assert (cell.ours is not None) == (cell.against is not None) == there


def test_what_else_differs_and_how_many_seeds_is_said_under_contrasts(tmp_path: Path) -> None:
    several(tmp_path, {"Mimetic": [(50.0 + seed, 60.0) for seed in range(8)]}, study="mine")
    several(tmp_path, {"Imp.-3": [(40.0, 50.0 + seed) for seed in range(3)]}, study="mine", heads=4)
    table = table_of(tmp_path, Layout(contrasts=[("Mimetic", "Imp.-3")]), "mine_contrasts")
    assert any("heads 3 (not 4)" in note for note in notes_of(table, "More than the initialisation"))
    assert r"| 60.00 ± 0.00 | +9.00 \[6.52, 11.48\] (n=3) |" in to_markdown(table)
    for each in (table, build(table.study, "mine_epochs")):
        assert notes_of(each, "Differences over fewer seeds than n: ")
