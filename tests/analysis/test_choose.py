"""Choosing on validation images: the rule worked out by hand, what is refused, and the grid that is written."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from synthetic_records import spec

from analysis import choose, frame
from benchmark.grids import grid
from benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from benchmark.records.store import Layout, Store
from benchmark.spec import RunSpec
from initializers.errors import VitinitError

ROOT = Path(__file__).parents[2]
ROWS = ("Kaiming uniform", "Mimetic")
TOP1 = {
    # by row and learning rate: seeds 100 and 101
    ("Kaiming uniform", 1e-3): (40.0, 42.0),
    ("Kaiming uniform", 3e-3): (41.0, 41.0),  # the same mean: the smaller learning rate is taken
    ("Mimetic", 1e-3): (50.0, 51.0),
    ("Mimetic", 3e-3): (49.0, 55.0),
}


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts the tests may have told how wide it is (COLUMNS): lines would fold."""
    monkeypatch.delenv("COLUMNS", raising=False)


def record(row: str, lr: float, seed: int, top1: float, evaluate_on: str = "val") -> RunRecord:
    content = json.loads(spec(row, seed=seed, epochs=1, train_size=8000).model_dump_json())
    content["dataset"] |= {"val_size": 2000, "evaluate_on": evaluate_on}
    content["recipe"]["lr"] = lr
    run = RunSpec.model_validate(content)
    row_of_history = {"epoch": 1, "lr": lr, "train_loss": 1.0, "seconds": 1.0}
    row_of_history |= {f"{evaluate_on}_loss": 1.0, f"{evaluate_on}_top1": top1}
    return RunRecord.model_validate(
        {
            "run_id": run.run_id,
            "study": "tuning",
            "row": row,
            "spec": run,
            "written": "2026-01-01T00:00:00+00:00",
            "seconds": 1.0,
            "parameters": 1,
            "dataset": {"train": 8000, evaluate_on: 2000, "classes": 10, "checksum": "0" * 64},
            "init": {"seconds": 0.0, "method_parameters": [], "norms": []},
            "history": [row_of_history],
            "execution": {},
            "environment": {},
        }
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    store = Store(tmp_path / "results")
    for (row, lr), both in TOP1.items():
        for seed, top1 in zip((100, 101), both, strict=True):
            store.write(record(row, lr, seed, top1))
    return tmp_path / "results"


def test_the_highest_mean_wins_and_of_equals_the_smaller(results: Path) -> None:
    fields, choices = choose.choose(frame.load([results], "tuning"))
    assert fields == ["lr"]
    assert {choice.row: choice.best.value for choice in choices} == {"Kaiming uniform": (1e-3,), "Mimetic": (3e-3,)}
    kaiming, mimetic = choices
    assert kaiming.lead == [-1.0, 1.0]
    assert mimetic.lead == [-1.0, 4.0]
    assert (kaiming.edge, mimetic.edge) == ("smallest", "largest")


def test_means_that_differ_by_rounding_alone_are_equal(tmp_path: Path) -> None:
    """641 and 865 of 2,000 images, and 707 and 799: as many in all, but not as floats."""
    for lr, both in ((1e-3, (32.05, 43.25)), (3e-3, (35.35, 39.95))):
        for seed, top1 in enumerate(both):
            Store(tmp_path).write(record("Mimetic", lr, seed, top1))
    (choice,) = choose.choose(frame.load([tmp_path], "tuning"))[1]
    assert choice.best.mean < choice.others[0].mean
    assert choice.best.value == (1e-3,)


def test_what_is_printed_says_how_sure_it_is(results: Path, capsys) -> None:
    assert choose.main(["tuning", "--results", str(results)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 120
    assert "+1.50 over lr 0.001, ahead at 1 of 2 seeds" in printed
    # (46.5 % of 2,000 images: sqrt(.465 x .535 / 2000) = 1.1 points)
    assert "number of images: 1.1 points" in printed


def test_a_reader_that_leaves_is_no_traceback(results: Path) -> None:
    """As `head` does; the reader is gone before anything is written."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "analysis.choose", "tuning", "--results", str(results)]
    left = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (left.returncode, left.stderr) == (1, "")


@pytest.mark.parametrize(("study", "code"), [("tuning", 0), ("unknown", 2)])
def test_a_closed_output_is_no_traceback(results: Path, study: str, code: int) -> None:
    """As by `>&-`."""
    command = [sys.executable, "-m", "analysis.choose", study, "--results", str(results)]
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.close(1))
    assert done.returncode == code
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error"] * bool(code)


def test_an_unfinished_study_chooses_nothing(results: Path, capsys) -> None:
    (results / "tuning" / f"{record('Mimetic', 3e-3, 101, 55.0).run_id}.json").unlink()
    assert choose.main(["tuning", "--results", str(results)]) == 2
    assert "Mimetic, lr 0.003, seed 101 is missing" in capsys.readouterr().err


def failed(row: str, lr: float, seed: int, error: str = "Diverged") -> FailureRecord:
    run = record(row, lr, seed, 10.0)
    kept = run.model_dump(include={"run_id", "study", "row", "spec", "written", "execution", "environment"})
    return FailureRecord(**kept, error=error, message="training loss nan", traceback="")


def test_a_value_that_diverged_is_out_and_named(results: Path, capsys) -> None:
    """At one seed of two; for the row that has it alone, not the other."""
    for seed in (100, 101):
        Store(results).write(record("Kaiming uniform", 1e-2, seed, 30.0))
    Store(results).write(record("Mimetic", 1e-2, 100, 99.0))
    Store(results).write(failed("Mimetic", 1e-2, 101))
    assert choose.main(["tuning", "--results", str(results)]) == 0
    kaiming, mimetic = capsys.readouterr().out.splitlines()[1:3]
    assert "41.00  0.00 over lr 0.003" in kaiming
    assert "diverged" not in kaiming
    assert "lr 0.003    52.00  +1.50 over lr 0.001, ahead at 1 of 2 seeds; lr 0.01 diverged" in mimetic
    assert "largest tried" not in mimetic, "0.01 was tried"


def test_a_row_that_diverged_but_for_one_value_has_that_one(tmp_path: Path, capsys) -> None:
    for seed in (100, 101):
        Store(tmp_path).write(record("Mimetic", 1e-3, seed, 50.0))
        Store(tmp_path).write(failed("Mimetic", 3e-3, seed))
        for lr in (1e-3, 3e-3):
            Store(tmp_path).write(record("Kaiming uniform", lr, seed, 40.0))
    assert choose.main(["tuning", "--results", str(tmp_path)]) == 0
    assert "lr 0.001    50.00  the smallest tried; lr 0.003 diverged" in capsys.readouterr().out


def test_another_failure_is_named_and_chooses_nothing(results: Path, capsys) -> None:
    (results / "tuning" / f"{record('Mimetic', 3e-3, 101, 55.0).run_id}.json").unlink()
    Store(results).write(failed("Mimetic", 3e-3, 101, "OutOfMemoryError"))
    assert choose.main(["tuning", "--results", str(results)]) == 2
    assert "Mimetic, lr 0.003, seed 101 has failed (OutOfMemoryError)" in capsys.readouterr().err


def test_a_row_that_diverged_with_every_value_is_said(results: Path, capsys) -> None:
    for lr in (1e-3, 3e-3):
        Store(results).write(failed("Trunc normal", lr, 100))
    assert choose.main(["tuning", "--results", str(results)]) == 2
    assert "Trunc normal diverged with every value" in capsys.readouterr().err


def test_a_row_that_was_only_skipped_is_left_out_and_said(results: Path, capsys) -> None:
    run = record("Trunc normal", 1e-3, 100, 10.0)
    kept = run.model_dump(include={"run_id", "study", "row", "spec", "written"})
    Store(results).write(SkipRecord(**kept, reason="does not fit"))
    assert [choice.row for choice in choose.choose(frame.load([results], "tuning"))[1]] == list(ROWS)
    assert choose.main(["tuning", "--results", str(results)]) == 0
    assert "Nothing is chosen for 'Trunc normal': it was skipped: does not fit\n" in capsys.readouterr().out


def test_a_row_of_the_grid_without_a_record_is_said(results: Path, capsys) -> None:
    Store(results).write_layout("tuning", Layout(rows=[*ROWS, "Imp.-3, placebo"]))
    assert choose.main(["tuning", "--results", str(results)]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Nothing is chosen")]
    assert said == ["Nothing is chosen for 'Imp.-3, placebo': the grid has it, and it has no record"]


def test_nothing_is_chosen_on_test_images(results: Path, capsys) -> None:
    Store(results).write(record("Mimetic", 3e-3, 102, 55.0, "test"))
    assert choose.main(["tuning", "--results", str(results)]) == 2
    assert "nothing is chosen on them" in capsys.readouterr().err


def test_the_grid_that_is_written_has_the_choices(results: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "mine.yaml", tmp_path / "chosen.yaml"
    source.write_text(
        "# why, and how\n# second line\ntitle: t\nrows:\n  Kaiming uniform: {base: kaiming_uniform}\n"
        "  Mimetic: {base: kaiming_uniform, method: mimetic, recipe: }\nblocks:\n  - datasets: [digits]\n"
        "    model: {preset: vit_micro, image_size: 8, patch_size: 2}\n    recipe: small\n    seeds: [0]\n"
    )
    before = source.read_text()
    arguments = ["tuning", "--results", str(results), "--grid", str(source), "--out", str(out)]
    assert choose.main(arguments) == 0
    assert out.read_text().startswith("# why, and how\n# second line\ntitle: t\n")
    assert source.read_text() == before
    rates = {cell.row: cell.spec.recipe.lr for cell in grid.load(str(out)).cells}
    assert rates == {"Kaiming uniform": 1e-3, "Mimetic": 3e-3}
    assert yaml.safe_load(out.read_text())["rows"]["Mimetic"] == {
        "base": "kaiming_uniform",
        "method": "mimetic",
        "recipe": {"lr": 3e-3},
    }


def test_a_recipe_that_is_no_mapping_is_refused(results: Path, tmp_path: Path) -> None:
    source = tmp_path / "mine.yaml"
    source.write_text("title: t\nrows: {Mimetic: {base: kaiming_uniform, method: mimetic, recipe: small}}\n")
    with pytest.raises(VitinitError, match="row 'Mimetic': recipe must be a mapping of its fields, not 'small'"):
        choose.filled(source, "tuning", *choose.choose(frame.load([results], "tuning")))


def with_recipe(row: str, seed: int, top1: float, **recipe: Any) -> RunRecord:
    before = record(row, 1e-3, seed, top1)
    run = before.spec.model_copy(update={"recipe": before.spec.recipe.model_copy(update=recipe)})
    return before.model_copy(update={"spec": run, "run_id": run.run_id, "study": "words"})


def test_an_edge_is_that_of_any_field(tmp_path: Path, capsys) -> None:
    tops = {(1e-4, 0.05): 40.0, (1e-3, 0.05): 50.0, (1e-4, 0.1): 41.0, (1e-3, 0.1): 42.0}
    for (lr, decay), top1 in tops.items():
        Store(tmp_path).write(with_recipe("Mimetic", 100, top1, lr=lr, weight_decay=decay))
    assert choose.main(["words", "--results", str(tmp_path)]) == 0
    assert "; the largest and smallest tried" in capsys.readouterr().out


def test_words_and_what_is_off_can_be_chosen_too(tmp_path: Path, capsys) -> None:
    values = [(None, "fp32", 50.0), (1.0, "fp32", 40.0), (None, "bf16", 30.0), (1.0, "bf16", 20.0)]
    for clip, precision, top1 in values:
        Store(tmp_path).write(with_recipe("Mimetic", 100, top1, clip_grad=clip, precision=precision))
    assert choose.main(["words", "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "over 1 seed:" in printed
    assert "clip_grad off, precision fp32  50.00" in printed
    assert "+10.00 over clip_grad 1, precision fp32, ahead at 1 of 1 seed" in printed


def test_one_row_of_several_models_is_refused(tmp_path: Path, capsys) -> None:
    for lr in (1e-3, 3e-3):
        Store(tmp_path).write(with_recipe("Mimetic", 100, 50.0, lr=lr))
    other = with_recipe("Mimetic", 101, 50.0)
    run = other.spec.model_copy(update={"model": other.spec.model.model_copy(update={"heads": 6})})
    Store(tmp_path).write(other.model_copy(update={"spec": run, "run_id": run.run_id}))
    assert choose.main(["words", "--results", str(tmp_path)]) == 2
    assert "several models or initialisations" in capsys.readouterr().err


def test_a_row_without_a_choice_is_refused(results: Path, tmp_path: Path) -> None:
    source = tmp_path / "mine.yaml"
    label = "Mimetic, placebo"
    for lr, seed in itertools.product((1e-3, 3e-3), (100, 101)):
        of_row = record("Imp.-3", lr, seed, 40.0)
        Store(results).write(of_row.model_copy(update={"row": "Imp.-3, placebo"}))
    source.write_text(f"title: t\nrows: {{'{label}': {{base: trunc_normal}}}}\n")
    fields, choices = choose.choose(frame.load([results], "tuning"))
    with pytest.raises(VitinitError) as error:
        choose.filled(source, "tuning", fields, choices)
    assert "row 'Mimetic, placebo': nothing was chosen for it, as tuning has no finished run of it" in str(error.value)
    assert "vitinit run tuning" in str(error.value)
    assert "chosen for: 'Kaiming uniform', 'Mimetic', 'Imp.-3, placebo'" in str(error.value)


def test_no_line_is_wider_than_the_terminal_and_none_loses_a_word(results: Path, capsys, monkeypatch) -> None:
    long = "Trunc normal, Kaiming's scale, and a placebo of it"
    for lr, seed in itertools.product((1e-3, 3e-3), (100, 101)):
        Store(results).write(record("Imp.-3", lr, seed, 40.0).model_copy(update={"row": long}))
    said = []
    for columns in ("", "80"):
        monkeypatch.setenv("COLUMNS", columns)
        assert choose.main(["tuning", "--results", str(results)]) == 0
        said.append(capsys.readouterr().out)
    whole, folded = said
    assert max(map(len, whole.splitlines())) > 80
    assert max(map(len, folded.splitlines())) <= 80
    assert folded.split() == whole.split()
    assert f"  {long}  lr 0.001    40.00\n    0.00 over lr 0.003, ahead at 0 of 2 seeds" in folded


def test_a_value_that_failed_everywhere_is_named_and_chooses_nothing(results: Path, capsys) -> None:
    for row in ROWS:
        for seed in (100, 101):
            Store(results).write(failed(row, 1e-2, seed, "OutOfMemoryError"))
    assert choose.main(["tuning", "--results", str(results)]) == 2
    assert "Kaiming uniform, lr 0.01, seed 100 has failed (OutOfMemoryError)" in capsys.readouterr().err


def test_a_seed_that_failed_everywhere_is_named_and_chooses_nothing(results: Path, capsys) -> None:
    for row, lr in TOP1:
        Store(results).write(failed(row, lr, 102, "OutOfMemoryError"))
    assert choose.main(["tuning", "--results", str(results)]) == 2
    assert "Kaiming uniform, lr 0.001, seed 102 has failed (OutOfMemoryError)" in capsys.readouterr().err


def test_a_value_that_diverged_everywhere_was_tried(tmp_path: Path, capsys) -> None:
    for row in ROWS:
        for seed in (100, 101):
            Store(tmp_path).write(record(row, 1e-3, seed, 40.0))
            Store(tmp_path).write(failed(row, 3e-3, seed))
    assert choose.main(["tuning", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("lr 0.001    40.00  the smallest tried; lr 0.003 diverged") == 2
