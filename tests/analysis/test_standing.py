"""Standing of a method: what is claimed and what is not, and that an answer stands."""

import itertools

import numpy as np
import pytest
from scipy import stats as scipy_stats
from synthetic_records import done, failed, respecified, several, with_metrics, write

from vitinit.analysis import standing
from vitinit.analysis.frame import load
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.store import Layout, Store

BASE = np.array([40.0, 41.0, 39.0, 42.0, 40.0, 41.0, 38.0, 43.0, 40.0, 41.0, 40.5, 39.5])
NOISE = np.array([0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.3, -0.3, 0.1, -0.1, 0.1])
NONE = np.array([])
ALONE = Layout(contrasts=[("Mine", "Mine's base")])
BOTH = Layout(contrasts=[*ALONE.contrasts, ("Mine", "Mine, placebo")])


def study(root, mine, placebo=NONE, layout=BOTH):
    several(root, {"Kaiming uniform": BASE[: len(mine)].tolist()}, study="rank-mine", label="Mine's base")
    for row, values in {"Mine": mine, "Mine, placebo": placebo}.items():
        tops = {"Mimetic": values.round(2).tolist()}
        several(root, tops, study="rank-mine", label=row, params={"seed_of_row": row})
    Store(root).write_layout("rank-mine", layout)
    looks.write(root / "rank-mine", looks.Looks(tier="quick", worth=1, seeds=list(range(12))))
    return load([root], "rank-mine")


def stands(study):
    plan = looks.read(study.folders[0] / study.name)
    return standing.standing(study, plan)


def printed(study, *beside):
    return "\n".join(standing.lines(stands(study), study, beside))


SMALL, MIXED = np.full(12, 0.3), np.array([3.0, -2.5] * 6)
ALMOST = np.array([3.0] * 7 + [-0.1] + [3.0] * 4) + NOISE / 10
"""p of its first eight is 4/256: more than the first look allows."""


@pytest.mark.parametrize(
    ("gain", "over_placebo", "answers", "seeds"),
    [
        (3 + NOISE, 3 + NOISE, "gain gain", 8),
        (3 + NOISE, MIXED, "gain open", 12),
        (3 + NOISE, MIXED / 10, "gain excluded", 8),
        (3 + NOISE, -3 + NOISE, "gain loss", 8),
        (ALMOST, ALMOST, "gain gain", 12),
        (-3 + NOISE, -3 + NOISE, "loss loss", 8),
        (MIXED / 10, 3 + NOISE, "excluded gain", 8),
        (SMALL + NOISE / 2, SMALL + NOISE / 2, "gain gain", 8),
    ],
)
def test_each_comparison_is_settled_by_the_first_look_that_can(gain, over_placebo, answers, seeds, tmp_path):
    mine = BASE + gain
    ranked = study(tmp_path, mine, mine - over_placebo)
    last = stands(ranked).last
    assert (f"{last.base.says} {last.placebo.says}", last.n) == (answers, seeds)
    assert last.base.gain == pytest.approx(float(gain[:seeds].mean()))
    flips = np.array(list(itertools.product((-1, 1), repeat=seeds))) @ gain[:seeds]
    assert last.base.p == pytest.approx((np.abs(flips) >= abs(gain[:seeds].sum()) - 1e-9).mean())
    interval = scipy_stats.t.interval(0.95, seeds - 1, gain[:seeds].mean(), scipy_stats.sem(gain[:seeds]))
    assert (last.base.low, last.base.high) == pytest.approx(interval)


def test_a_rise_of_an_error_is_a_loss(tmp_path):
    ours = study(tmp_path, BASE + 3 + NOISE, BASE + NOISE[::-1])
    for run in ours.contents.done.values():
        write(tmp_path, with_metrics(run, calibration_error=run.score))
    last = stands(load([tmp_path], ours.name).by("calibration_error")).last
    assert (last.base.says, last.placebo.says) == ("loss", "loss")
    assert last.base.gain == pytest.approx(-3, abs=0.2)


def test_no_number_is_given_before_the_first_look_nor_between_two(tmp_path):
    few = study(tmp_path / "7", (BASE + 3 + NOISE)[:7], BASE[:7])
    assert printed(few) == "Mine: no verdict yet: 7 of the 8 seeds of the first look are recorded."
    eight, ten = (printed(study(tmp_path / str(n), (BASE + MIXED)[:n], BASE[:n])) for n in (8, 10))
    assert eight == ten
    assert "12 seeds decide" in eight.splitlines()[0]


def test_an_answer_that_was_given_stands_whatever_comes_after(tmp_path):
    """More seeds, other numbers at the same seeds: the look at 8 was taken, and is not taken again."""
    first = study(tmp_path, (BASE + 3 + NOISE)[:8], layout=ALONE)
    command = ["rank-mine", "--results", str(tmp_path)]
    assert standing.main(command) == 0
    answer = looks.read(tmp_path / "rank-mine")
    assert (answer.target, [look.n for look in answer.taken]) == (None, [8])
    for run_id in first.contents.done:
        (tmp_path / "rank-mine" / f"{run_id}.json").unlink()
    several(tmp_path, {"Kaiming uniform": (BASE + 9).tolist()}, study="rank-mine", label="Mine's base")
    several(tmp_path, {"Mimetic": BASE.tolist()}, study="rank-mine", label="Mine", params={"seed_of_row": "Mine"})
    assert standing.main(command) == 0
    assert looks.read(tmp_path / "rank-mine") == answer


def test_it_stands_among_gains_of_the_same_setting(tmp_path, capsys):
    ours, there = study(tmp_path / "mine", BASE + 3 + NOISE, BASE + NOISE[::-1]), tmp_path / "reference"
    tops = {"Kaiming uniform": [40.0] * 5, "Mimetic": [45.0 + seed for seed in range(5)], "Imp.-3": [*[41.0] * 4, 41.1]}
    several(there, tops, study="tier")
    several(there, tops, study="tier", dataset="svhn", label="other images")
    for row in ("Kaiming uniform", "Mimetic"):
        for other in ({"recipe": {"lr": 3e-3}}, {"model": {"width": 96}}):
            for seed in range(3):
                run = respecified(done(row, (43.0 + seed,), study="tier", seed=seed), **other)
                write(there, run.model_copy(update={"row": f"{row}, {other}"}))
    line = f"rank-mine --results {tmp_path}/mine --beside {there}/tier --beside {there}/gone"
    assert standing.main(line.split()) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"Mine: {stands(ours).verdict}"
    mean, error = (3 + NOISE)[:8].mean(), scipy_stats.sem((3 + NOISE)[:8])
    half = error * scipy_stats.t.ppf(0.975, 7)
    interval = f"+{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]"
    assert said[2] == f"  minus its base     {interval}  p = 0.0078  n = 8  detectable {0.92 * error * 8**0.5:.1f}"
    assert [line.split(maxsplit=3)[3] for line in said if "(n = " in line] == [
        "Mimetic (n = 5, tier)",
        "> Mine (n = 8, rank-mine)",
        "Imp.-3 (n = 5, tier)",
    ]
    assert "  +7.00 [5.04, 8.96]       Mimetic (n = 5, tier)" in said
    assert said[-1] == "The answer is final: more seeds change nothing."
    assert max(map(len, said)) <= 120
    assert "No committed study has gains over the base kaiming_uniform in this setting." in printed(ours)


def test_a_failed_run_and_a_changed_file_are_said(tmp_path):
    for row, label, top1 in (("Kaiming uniform", "Mine's base", BASE), ("Mimetic", "Mine", BASE + 3 + NOISE)):
        for seed, score in enumerate(top1[:6]):
            own = {"my:Mine": "a" if seed < 3 else "b"} if label == "Mine" else {}
            environment = {"initializers": {"kaiming_uniform": "c", **own}}
            which = {"study": "rank-mine", "label": label, "seed": seed, "environment": environment}
            write(tmp_path, done(row, (float(score),), **which))
    for seed in (7, 6):
        run = failed("Mimetic", study="rank-mine", seed=seed, epochs=1)
        write(tmp_path, run.model_copy(update={"row": "Mine", "error": "Diverged"}))
    Store(tmp_path).write_layout("rank-mine", ALONE)
    looks.write(tmp_path / "rank-mine", looks.Looks(tier="quick", worth=1, seeds=list(range(12))))
    (tmp_path / "rank-mine.yaml").touch()
    (tmp_path / "rank-00000000.yaml").touch()
    assert printed(load([tmp_path], "rank-mine")).splitlines() == [
        "Mine: no verdict yet: 6 of the 8 seeds of the first look are recorded.",
        "But Mine failed at seed 6 (Diverged): a look needs every run.",
        "But Mine failed at seed 7 (Diverged): a look needs every run.",
        "But the file of my:Mine changed between the runs: these numbers mix 2 versions of it.",
        "1 other version of it was ranked here on the same seeds: the error rate below is that of each alone.",
    ]
