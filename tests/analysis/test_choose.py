"""Choosing on validation images: the rule worked out by hand, what is refused, and the grid that is written."""

import pytest
from synthetic_records import done, respecified, validated, with_metrics, write

from vitinit.analysis import choose, frame
from vitinit.analysis.pages.render import page
from vitinit.benchmark.records.record import FailureRecord
from vitinit.benchmark.schedules import Cosine, Linear
from vitinit.benchmark.spec import OptimizerSpec

ROWS = ("Kaiming uniform", "Mimetic")
TOP1 = {
    # by row and learning rate: seeds 100 and 101
    ("Kaiming uniform", 1e-3): (40.0, 42.0),
    ("Kaiming uniform", 3e-3): (41.0, 41.0),  # the same mean: the smaller learning rate is taken
    ("Mimetic", 1e-3): (50.0, 51.0),
    ("Mimetic", 3e-3): (49.0, 55.0),
}


def record(row, lr, seed, top1, validation=True, **recipe):
    run = done(row, (top1,), seed=seed, train_size=8000, study="tuning")
    run = respecified(run, recipe={"lr": lr, **recipe})
    return validated(run) if validation else run


def failed(row, lr, seed, error="Diverged"):
    run = record(row, lr, seed, 10.0)
    kept = run.model_dump(include={"run_id", "study", "row", "spec", "written", "execution", "environment"})
    return FailureRecord(**kept, error=error, message="training loss nan", traceback="")


@pytest.fixture
def results(tmp_path):
    root = tmp_path / "results"
    for (row, lr), both in TOP1.items():
        write(root, *(record(row, lr, seed, top1) for seed, top1 in zip((100, 101), both, strict=True)))
    return root


@pytest.fixture
def run(capsys):
    """Exit code and what was printed, of the study in a folder."""

    def call(root, *options):
        code = choose.main(["tuning", "--results", str(root), *map(str, options)])
        said = capsys.readouterr()
        return code, said.err or said.out

    return call


def test_the_highest_mean_wins_and_of_equals_the_smaller(results, run):
    fields, choices = choose.choose(frame.load([results], "tuning"))
    assert fields == ["lr"]
    assert {choice.row: choice.best.value for choice in choices} == {"Kaiming uniform": (1e-3,), "Mimetic": (3e-3,)}
    kaiming, mimetic = choices
    assert kaiming.lead == [-1.0, 1.0]
    assert mimetic.lead == [-1.0, 4.0]
    assert (kaiming.edge, mimetic.edge) == ("smallest", "largest")
    code, printed = run(results)
    assert code == 0
    assert "+1.50 over lr 0.001, ahead at 1 of 2 seeds" in printed
    # (46.5 % of 2,000 images: sqrt(.465 x .535 / 2000) = 1.1 points)
    assert "from the number of images: 1.1 points" in printed


def test_of_an_error_the_lowest_mean_wins(tmp_path):
    for (row, lr), both in TOP1.items():
        for seed, error in zip((100, 101), both, strict=True):
            write(tmp_path, with_metrics(record(row, lr, seed, 10.0), calibration_error=error))
    study = frame.load([tmp_path], "tuning").by("calibration_error")
    _, choices = choose.choose(study)
    assert {choice.row: choice.best.value for choice in choices} == {"Kaiming uniform": (1e-3,), "Mimetic": (1e-3,)}
    assert "+1.50 over lr 0.003, ahead at 1 of 2 seeds" in "\n".join(choose.lines(study))
    assert "standard error" not in page(study), "of an error that is no share of the images"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([record("Mimetic", 3e-3, 102, 50.0)], "seed 102: no record"),
        ([failed(row, 1e-2, 100, "OutOfMemoryError") for row in ROWS], "seed 100: OutOfMemoryError"),
        ([failed("Trunc normal", lr, 100) for lr in (1e-3, 3e-3)], "Trunc normal diverged with every value"),
        ([record("Mimetic", 3e-3, 102, 55.0, validation=False)], "nothing is chosen on them"),
        ([record("Mimetic", 1e-3, 102, 50.0, optimizer=OptimizerSpec(name="lion"))], "give each one rows of its own"),
    ],
)
def test_nothing_is_chosen_and_the_reason_is_said(results, run, more, says):
    code, said = run(write(results, *more))
    assert code == 2
    assert says in said


def test_a_value_that_diverged_is_out_and_named(results, run):
    """At one seed of two; for the row that has it alone, not the other."""
    write(results, *(record("Kaiming uniform", 1e-2, seed, 30.0) for seed in (100, 101)))
    code, printed = run(write(results, record("Mimetic", 1e-2, 100, 99.0), failed("Mimetic", 1e-2, 101)))
    assert code == 0
    kaiming, mimetic = printed.splitlines()[1:3]
    assert "41.00  0.00 over lr 0.003" in kaiming
    assert "diverged" not in kaiming
    assert "lr 0.003    52.00  +1.50 over lr 0.001, ahead at 1 of 2 seeds; lr 0.01 diverged" in mimetic
    assert "largest tried" not in mimetic, "0.01 was tried"


def test_a_value_that_is_no_number_is_chosen_and_stands_on_the_page(tmp_path):
    for field, values in {"clip_grad": (None, 1.0), "schedule": (Cosine(), Linear())}.items():
        for top1, value in zip((40.0, 50.0), values, strict=True):
            write(tmp_path / field, record("Mimetic", 1e-3, 100, top1, **{field: value}))
        text = page(frame.load([tmp_path / field]))
        assert "| 40.00 | **50.00** |" in text
        # sqrt(.5 x .5 / 2000)
        assert "One score has a standard error of 1.1 points" in text
