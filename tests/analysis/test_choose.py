"""Choosing on validation images: the rule worked out by hand, what is refused, and the grid that is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from synthetic_records import VALIDATION, done, of_dataset, respecified, with_error, write

from vitinit.analysis import choose, frame
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from vitinit.benchmark.records.store import Layout, Store
from vitinit.benchmark.spec import OptimizerSpec
from vitinit.initializers.errors import VitinitError

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


def record(row: str, lr: float, seed: int, top1: float, validation: bool = True, **recipe: object) -> RunRecord:
    run = done(row, (top1,), seed=seed, train_size=8000, study="tuning")
    run = respecified(run, recipe={"lr": lr, **recipe})
    return of_dataset(run, **VALIDATION) if validation else run


def failed(row: str, lr: float, seed: int, error: str = "Diverged") -> FailureRecord:
    run = record(row, lr, seed, 10.0)
    kept = run.model_dump(include={"run_id", "study", "row", "spec", "written", "execution", "environment"})
    return FailureRecord(**kept, error=error, message="training loss nan", traceback="")


def skipped(row: str) -> SkipRecord:
    kept = record(row, 1e-3, 100, 10.0).model_dump(include={"run_id", "study", "row", "spec", "written"})
    return SkipRecord(**kept, reason="does not fit")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    root = tmp_path / "results"
    for (row, lr), both in TOP1.items():
        write(root, *(record(row, lr, seed, top1) for seed, top1 in zip((100, 101), both, strict=True)))
    return root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Exit code and what was printed, of the study in a folder."""

    def call(root: Path, *options: object) -> tuple[int, str]:
        code = choose.main(["tuning", "--results", str(root), *map(str, options)])
        said = capsys.readouterr()
        return code, said.err or said.out

    return call


def test_the_highest_mean_wins_and_of_equals_the_smaller(results: Path, run) -> None:
    fields, choices = choose.choose(frame.load([results], "tuning"))
    assert fields == ["lr"]
    assert {choice.row: choice.best.value for choice in choices} == {"Kaiming uniform": (1e-3,), "Mimetic": (3e-3,)}
    kaiming, mimetic = choices
    assert kaiming.lead == [-1.0, 1.0]
    assert mimetic.lead == [-1.0, 4.0]
    assert (kaiming.edge, mimetic.edge) == ("smallest", "largest")
    code, printed = run(results)
    assert code == 0
    assert max(map(len, printed.splitlines())) <= 120
    assert "+1.50 over lr 0.001, ahead at 1 of 2 seeds" in printed
    # (46.5 % of 2,000 images: sqrt(.465 x .535 / 2000) = 1.1 points)
    assert "number of images: 1.1 points" in printed


def test_of_an_error_the_lowest_mean_wins(tmp_path: Path) -> None:
    for (row, lr), both in TOP1.items():
        for seed, error in zip((100, 101), both, strict=True):
            write(tmp_path, with_error(record(row, lr, seed, 10.0), error))
    study = frame.load([tmp_path], "tuning").by("calibration_error")
    fields, choices = choose.choose(study)
    assert {choice.row: choice.best.value for choice in choices} == {"Kaiming uniform": (1e-3,), "Mimetic": (1e-3,)}
    assert "−1.50 over lr 0.003, ahead at 1 of 2 seeds" in "\n".join(choose.lines(study, fields, choices))


def test_means_that_differ_by_rounding_alone_are_equal(tmp_path: Path) -> None:
    """641 and 865 of 2,000 images, and 707 and 799: as many in all, but not as floats."""
    for lr, both in ((1e-3, (32.05, 43.25)), (3e-3, (35.35, 39.95))):
        write(tmp_path, *(record("Mimetic", lr, seed, top1) for seed, top1 in enumerate(both)))
    (choice,) = choose.choose(frame.load([tmp_path], "tuning"))[1]
    assert choice.best.mean < choice.others[0].mean
    assert choice.best.value == (1e-3,)


@pytest.mark.parametrize(("study", "code"), [("tuning", 0), ("unknown", 2)])
def test_a_closed_output_or_a_reader_that_leaves_is_no_traceback(results: Path, study: str, code: int) -> None:
    """As by `>&-`; and as by `head`, where the reader is gone before anything is written."""
    command = [sys.executable, "-m", "vitinit.analysis.choose", study, "--results", str(results)]
    ran = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.close(1))
    assert ran.returncode == code
    assert [line.partition(":")[0] for line in ran.stderr.splitlines()] == ["error"] * bool(code)
    plain = "import sys; from vitinit.analysis import command; sys.exit(command.guarded(lambda: print('more')))"
    for each in (command, [sys.executable, "-c", plain]) if code == 0 else ():
        read, write = os.pipe()
        os.close(read)
        left = subprocess.run(each, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True)
        os.close(write)
        assert (left.returncode, left.stderr) == (1, "")


@pytest.mark.parametrize(
    ("gone", "more", "says"),
    [
        (True, [], "Mimetic, lr 0.003, seed 101 is missing"),
        (
            True,
            [failed("Mimetic", 3e-3, 101, "OutOfMemoryError")],
            "Mimetic, lr 0.003, seed 101 has failed (OutOfMemoryError)",
        ),
        (
            False,
            [failed(row, 1e-2, seed, "OutOfMemoryError") for row in ROWS for seed in (100, 101)],
            "Kaiming uniform, lr 0.01, seed 100 has failed (OutOfMemoryError)",
        ),
        (
            False,
            [failed(row, lr, 102, "OutOfMemoryError") for row, lr in TOP1],
            "Kaiming uniform, lr 0.001, seed 102 has failed (OutOfMemoryError)",
        ),
        (False, [failed("Trunc normal", lr, 100) for lr in (1e-3, 3e-3)], "Trunc normal diverged with every value"),
        (False, [record("Mimetic", 3e-3, 102, 55.0, validation=False)], "nothing is chosen on them"),
        (
            False,
            [respecified(record("Mimetic", 1e-3, 102, 50.0), model={"heads": 6})],
            "several models or initialisations",
        ),
        (
            False,
            [record("Mimetic", 1e-3, 102, 50.0, optimizer=OptimizerSpec(name="lion"))],
            "give each one rows of its own",
        ),
    ],
    ids=[
        "missing",
        "failed",
        "a value failed",
        "a seed failed",
        "diverged",
        "test images",
        "two models",
        "two optimizers",
    ],
)
def test_nothing_is_chosen_and_the_reason_is_said(results: Path, run, gone: bool, more: list, says: str) -> None:
    if gone:
        (results / "tuning" / f"{record('Mimetic', 3e-3, 101, 55.0).run_id}.json").unlink()
    code, said = run(write(results, *more))
    assert code == 2
    assert says in said


def test_a_value_that_diverged_is_out_and_named(results: Path, run) -> None:
    """At one seed of two; for the row that has it alone, not the other."""
    write(results, *(record("Kaiming uniform", 1e-2, seed, 30.0) for seed in (100, 101)))
    code, printed = run(write(results, record("Mimetic", 1e-2, 100, 99.0), failed("Mimetic", 1e-2, 101)))
    assert code == 0
    kaiming, mimetic = printed.splitlines()[1:3]
    assert "41.00  0.00 over lr 0.003" in kaiming
    assert "diverged" not in kaiming
    assert "lr 0.003    52.00  +1.50 over lr 0.001, ahead at 1 of 2 seeds; lr 0.01 diverged" in mimetic
    assert "largest tried" not in mimetic, "0.01 was tried"


def test_a_value_that_diverged_everywhere_was_tried(tmp_path: Path, run) -> None:
    for row in ROWS:
        write(tmp_path, *(record(row, 1e-3, seed, 40.0) for seed in (100, 101)))
        write(tmp_path, *(failed(row, 3e-3, seed) for seed in (100, 101)))
    code, printed = run(tmp_path)
    assert code == 0
    assert printed.count("lr 0.001    40.00  the smallest tried; lr 0.003 diverged") == 2


def test_a_row_without_a_record_of_its_own_is_left_out_and_said(results: Path, run) -> None:
    write(results, skipped("Trunc normal"))
    Store(results).write_layout("tuning", Layout(rows=[*ROWS, "Imp.-3, placebo"]))
    code, printed = run(results)
    assert code == 0
    assert {line for line in printed.splitlines() if line.startswith("Nothing is chosen")} == {
        "Nothing is chosen for 'Trunc normal': it was skipped: does not fit",
        "Nothing is chosen for 'Imp.-3, placebo': the grid has it, and it has no record",
    }
    assert [choice.row for choice in choose.choose(frame.load([results], "tuning"))[1]] == list(ROWS)


def test_the_grid_that_is_written_has_the_choices(results: Path, tmp_path: Path, run) -> None:
    source, out = tmp_path / "mine.yaml", tmp_path / "chosen.yaml"
    source.write_text(
        "# why, and how\n# second line\ntitle: t\nrows:\n  Kaiming uniform: {base: kaiming_uniform}\n"
        "  Mimetic: {base: kaiming_uniform, method: mimetic, recipe: }\nblocks:\n  - datasets: [digits]\n"
        "    model: {preset: vit_micro, image_size: 8, patch_size: 2}\n    recipe: small\n    seeds: [0]\n"
    )
    before = source.read_text()
    assert run(results, "--grid", source, "--out", out)[0] == 0
    assert out.read_text().startswith("# why, and how\n# second line\ntitle: t\n")
    assert source.read_text() == before
    rates = {cell.row: cell.spec.recipe.lr for cell in grid.load(str(out)).cells}
    assert rates == {"Kaiming uniform": 1e-3, "Mimetic": 3e-3}
    mimetic = {"base": "kaiming_uniform", "method": "mimetic", "recipe": {"lr": 3e-3}}
    assert yaml.safe_load(out.read_text())["rows"]["Mimetic"] == mimetic


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            "Mimetic: {base: kaiming_uniform, method: mimetic, recipe: small}",
            "row 'Mimetic': recipe must be a mapping of its fields, not 'small'",
        ),
        (
            "'Mimetic, placebo': {base: trunc_normal}",
            "row 'Mimetic, placebo': nothing was chosen for it, as tuning has no finished run of it"
            ".*vitinit run tuning.*chosen for: 'Kaiming uniform', 'Mimetic'",
        ),
    ],
)
def test_a_grid_that_cannot_have_the_choices_is_refused(results: Path, tmp_path: Path, rows: str, says: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"title: t\nrows: {{{rows}}}\n")
    with pytest.raises(VitinitError, match=says):
        choose.filled(tmp_path / "mine.yaml", "tuning", *choose.choose(frame.load([results], "tuning")))


def test_words_and_what_is_off_can_be_chosen_and_an_edge_is_that_of_any_field(tmp_path: Path, run) -> None:
    tops = {(1e-4, 0.05): 40.0, (1e-3, 0.05): 50.0, (1e-4, 0.1): 41.0, (1e-3, 0.1): 42.0}
    numbers = (record("Mimetic", lr, 100, top1, weight_decay=decay) for (lr, decay), top1 in tops.items())
    code, printed = run(write(tmp_path / "numbers", *numbers))
    assert code == 0
    assert "; the largest and smallest tried" in printed
    values = [(None, "fp32", 50.0), (1.0, "fp32", 40.0), (None, "bf16", 30.0), (1.0, "bf16", 20.0)]
    words = (record("Mimetic", 1e-3, 100, top1, clip_grad=clip, precision=name) for clip, name, top1 in values)
    code, printed = run(write(tmp_path / "words", *words))
    assert code == 0
    assert "over 1 seed:" in printed
    assert "clip_grad off, precision fp32  50.00" in printed
    assert "+10.00 over clip_grad 1, precision fp32, ahead at 1 of 1 seed" in printed
