"""Where a method stands: what is claimed and what is not, and the power worked out by simulation."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats
from synthetic_records import done, failed, finished, several, spec, write

from vitinit.analysis import choose, standing
from vitinit.analysis.frame import LOCAL, REFERENCE, Study, load
from vitinit.analysis.stats import could_claim, could_show, paired
from vitinit.benchmark.records.store import Layout, Store

BASE = np.array([40.0, 41.0, 39.0, 42.0, 40.0, 41.0, 38.0, 43.0, 40.0, 41.0])
NOISE = np.array([0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.3, -0.3, 0.1])
NONE = np.array([])
ALONE = Layout(contrasts=[("Mine", "Mine's base")])
BOTH = Layout(contrasts=[*ALONE.contrasts, ("Mine", "Mine, placebo")])


def study(root: Path, mine: np.ndarray, placebo: np.ndarray = NONE, layout: Layout = BOTH) -> Study:
    several(root, {"Kaiming uniform": BASE[: len(mine)].tolist()}, study="rank-mine", label="Mine's base")
    for row, values in {"Mine": mine, "Mine, placebo": placebo}.items():
        its = {"Mimetic": values.round(2).tolist()}
        several(root, its, study="rank-mine", label=row, params={"seed_of_row": row})
    Store(root).write_layout("rank-mine", layout)
    return load([root], "rank-mine")


def printed(study: Study, beside: Study | None = None) -> str:
    return "\n".join(standing.lines(standing.standing(study), study, beside, ""))


@pytest.mark.parametrize(
    ("gain", "over_placebo", "n", "says"),
    [
        (3.0, 3.0, 10, ": norms and singular values do not explain all of it"),
        (3.0, 0.0, 10, "That it is the pattern that helps is not shown"),
        (3.0, -3.0, 10, "its placebo gains more"),
        (0.0, 0.0, 10, "No gain over its own base is shown"),
        (-3.0, -3.0, 10, "worse than its own base"),
        (3.0, 3.0, 5, "too few for any claim: p cannot go under 0.12"),
        (3.0, 3.0, 1, "1 seed is too few for any claim: p cannot go under "),
    ],
)
def test_what_is_claimed(tmp_path: Path, gain: float, over_placebo: float, n: int, says: str) -> None:
    mine = (BASE + gain + NOISE)[:n]
    found = standing.standing(study(tmp_path, mine, mine - over_placebo - NOISE[::-1][:n]))
    assert says in found.verdict
    assert found.base.mean == pytest.approx(float(np.mean(mine - BASE[:n])))


@pytest.mark.parametrize(
    ("placebo", "layout", "says", "p"),
    [
        ((BASE + NOISE)[:5], BOTH, "5 seeds of its placebo are too few to say more.", 2 * 2 / 2**10),
        (NONE, BOTH, "Its placebo has no finished run of a common seed.", 2 * 2 / 2**10),
        (NONE, ALONE, "Whether it is a pattern that helps no placebo can tell.", 2 / 2**10),
    ],
    ids=["few seeds", "no runs", "not compared"],
)
def test_a_placebo_that_says_nothing_takes_no_claim_from_the_base(tmp_path: Path, placebo, layout, says, p) -> None:
    its = study(tmp_path, BASE + 3.0 + NOISE, placebo, layout)
    assert standing.standing(its).verdict == f"It gains over its own base. {says}"
    assert f"p = {p:.3f}  n = 10" in printed(its)
    assert ("minus its placebo" in printed(its)) == (len(placebo) > 0)


def test_a_p_is_never_zero_and_no_difference_is_no_gain(tmp_path: Path) -> None:
    values = np.concatenate([BASE, BASE])[:12]
    several(tmp_path, {"Kaiming uniform": values.tolist(), "Mimetic": (values + 3).tolist()}, study="rank-mine")
    Store(tmp_path).write_layout("rank-mine", Layout(contrasts=[("Mimetic", "Kaiming uniform")]))
    assert "p < 0.001  n = 12" in printed(load([tmp_path], "rank-mine"))
    found = standing.standing(study(tmp_path / "same", BASE, BASE))
    assert found.p == (1.0, 1.0)
    assert "No gain" in found.verdict


@pytest.mark.parametrize("level", [None, 0.05, 0.025])
def test_the_difference_that_could_be_shown_or_claimed_has_the_power_it_says(level: float | None) -> None:
    pair = paired(pd.Series(NOISE), pd.Series(np.zeros(10)))
    seen = could_show(pair) if level is None else could_claim(pair, level)
    samples = np.random.default_rng(1).normal(seen, NOISE.std(ddof=1), size=(5_000, 10))
    if level is None:
        p = scipy_stats.ttest_1samp(samples, 0.0, axis=1).pvalue
    else:
        signs = np.array(list(itertools.product((-1, 1), repeat=10)))
        p = (np.abs(samples @ signs.T) >= np.abs(samples.sum(axis=1, keepdims=True)) - 1e-9).mean(axis=1)
        assert could_claim(pair, 2.0**-10) is None
    assert (p <= (level or 0.05)).mean() == pytest.approx(0.8, abs=0.03)


def test_it_stands_among_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = study(tmp_path / "mine", BASE + 3 + NOISE, BASE + NOISE[::-1])
    there = {"Kaiming uniform": [40.0] * 5, "Mimetic": [45.0 + seed for seed in range(5)], "Imp.-3": [41.0] * 5}
    environment = {"processor": "Other", "packages": {"torch": "2.6.0"}}
    several(tmp_path / "reference", there, study="tier", environment=environment)
    arguments = ["rank-mine", "--results", str(tmp_path / "mine"), "--beside", str(tmp_path / "reference/tier")]
    assert standing.main([*arguments, "--more", "vitinit rank Mine --budget 2h"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == f"Mine: {standing.standing(ours).verdict}"
    at = [said.index(text) for text in ("+7.00  Mimetic", "> Mine (n = 10)", "+1.00  Imp.-3")]
    assert at == sorted(at)
    assert "There: Other, torch 2.6.0" in said
    assert "More seeds: vitinit rank Mine --budget 2h" in said
    assert max(map(len, said.splitlines())) <= 120
    write(tmp_path, done("Mimetic", study="plain"))
    assert standing.main(["plain", "--results", str(tmp_path)]) == 2
    assert "vitinit rank" in capsys.readouterr().err


def test_no_power_is_named_where_nothing_can_be_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n, power in ((5, False), (10, True)):
        study(tmp_path / str(n), (BASE + 3 + NOISE)[:n], BASE[:n])
        assert standing.main(["rank-mine", "--results", str(tmp_path / str(n)), "--more", "x"]) == 0
        said = capsys.readouterr().out
        assert ("the test would find" in said) == ("p is that of one look" in said) == power


def test_seeds_that_failed_are_said_beside_the_verdict_and_in_latex(tmp_path: Path, capsys) -> None:
    def fails(seed: int, error: str = "Diverged") -> None:
        run = failed("Mimetic", study="rank-mine", seed=seed, epochs=1, params={"seed_of_row": "Mine"})
        write(tmp_path, run.model_copy(update={"row": "Mine", "error": error}))

    mine = BASE + 3.0 + NOISE
    study(tmp_path, mine[:8], mine[:8] - 3.0 - NOISE[:8])
    fails(9)
    fails(8)
    lines = printed(load([tmp_path], "rank-mine")).splitlines()
    assert lines[0].startswith("Mine: It gains over its own base, and over its placebo")
    assert lines[1] == "But Mine failed at seeds 8, 9 (Diverged): not in these numbers."
    assert "LaTeX (top-1 (n = 8, 2 failed), minus base (n = 8), minus placebo (n = 8)):" in lines
    for run_id, record in load([tmp_path], "rank-mine").contents.done.items():
        if record.row == "Mine":
            (tmp_path / "rank-mine" / f"{run_id}.json").unlink()
    fails(1, "OutOfMemoryError")
    assert standing.main(["rank-mine", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "Mine and Mine's base have no finished run of a common seed" in said
    assert said.endswith("; Mine failed at seeds 8, 9 (Diverged); Mine failed at seed 1 (OutOfMemoryError)\n")


def test_the_help_names_the_default_of_results(capsys: pytest.CaptureFixture[str]) -> None:
    for module in (choose, standing):
        with pytest.raises(SystemExit, match="0"):
            module.main(["--help"])
        said = " ".join(capsys.readouterr().out.split())
        assert f"(default: {LOCAL} when it holds records, otherwise {REFERENCE})" in said


def test_a_file_that_changed_between_the_runs_is_said(tmp_path: Path) -> None:
    for row, label, top1 in (("Kaiming uniform", "Mine's base", BASE), ("Mimetic", "Mine", BASE + 3 + NOISE)):
        for seed, each in enumerate(top1):
            own = {"my:Mine": "a" if seed < 6 else "b"} if label == "Mine" else {}
            environment = {"initializers": {"kaiming_uniform": "c", **own}}
            which = {"study": "rank-mine", "label": label, "seed": seed, "environment": environment}
            write(tmp_path, done(row, (float(each),), **which))
    Store(tmp_path).write_layout("rank-mine", ALONE)
    _, second, third, *_ = printed(load([tmp_path], "rank-mine")).splitlines()
    assert second == "But the file of my:Mine changed between the runs: these numbers mix 2 versions of it."
    assert third == ""


def test_gains_over_another_base_or_of_another_model_or_recipe_are_not_listed(tmp_path: Path) -> None:
    ours, root = study(tmp_path / "mine", BASE + 3 + NOISE, BASE + NOISE[::-1]), tmp_path / "reference"
    for name, model in {"same": {}, "wide": {"width": 96}, "learned": {"position": "learned"}}.items():
        for row, top1 in (("Kaiming uniform", 40.0), ("Mimetic", 45.0)):
            several(root, {row: [top1] * 3}, study="tier", label=f"{row}, {name}", **model)
        several(root, {"Imp.-3": [(41.0, 42.0)] * 3, "Kaiming uniform": [(40.0, 41.0)] * 3}, study="longer", **model)
    for seed, row in itertools.product(range(3), ("Trunc normal", "Mimetic")):
        run = spec(row, seed=seed, epochs=1).model_copy(update={"base": spec("Trunc normal").base})
        write(root, finished(run, (40.0,), study="another", row=row))
    text = printed(ours, load([root], "tier"))
    assert "+5.00  Mimetic, same (n = 3)" in text
    assert "wide" not in text
    assert "learned" not in text
    for name in ("longer", "another"):
        text = printed(ours, load([root], name))
        assert f"{name} holds no gains over the base kaiming_uniform with this model" in text
        assert "  Mimetic (n = 3)" not in text


def machines(root: Path, **environments: tuple[dict[str, Any], dict[str, Any]]) -> str:
    """What is said of two studies: where the base and the method of seed 0 ran; seeds 1 and 2 are on the base's."""
    for name, (first, second) in environments.items():
        for seed in range(3):
            for row, its in (("Kaiming uniform", first), ("Mimetic", first if seed else second)):
                write(root, done(row, (40.0,), study=name, seed=seed, environment=its))
        Store(root).write_layout(name, Layout(contrasts=[("Mimetic", "Kaiming uniform")]))
    ours, there = (load([root], name) for name in environments)
    return printed(ours, there)


@pytest.mark.parametrize(
    ("here", "there", "says", "not_said"),
    [
        ("AA", "AA", [], ["machine"]),
        ("AA", "BB", ["Here: A, torch 2.6.0. There: B, torch 2.6.0.", "within one machine"], ["In "]),
        ("AA", "BA", ["In tier the runs of seed 0 come from more than one"], ["within one machine"]),
        ("AB", "AB", ["In mine the runs of seed 0", "In tier the runs"], ["Here:", "within one"]),
    ],
)
def test_machines_are_compared_seed_by_seed(
    here: str, there: str, says: list[str], not_said: list[str], tmp_path: Path
) -> None:
    mine, tier = (tuple({"processor": name, "packages": {"torch": "2.6.0"}} for name in pair) for pair in (here, there))
    text = machines(tmp_path, mine=mine, tier=tier)
    assert [each for each in says if each not in text] == []
    assert [each for each in not_said if each in text] == []


def test_any_library_of_another_version_is_named_and_no_other(tmp_path: Path) -> None:
    mine, tier = (
        {"processor": "A", "packages": {"torch": "2.6.0", "numpy": "2.4.6", "timm": timm, "vitinit": vitinit}}
        for timm, vitinit in (("1.0.31", "0.2"), ("0.6.0", "0.1"))
    )
    text = machines(tmp_path, mine=(mine, mine), tier=(tier, tier))
    assert "Here: A, torch 2.6.0, timm 1.0.31. There: A, torch 2.6.0, timm 0.6.0." in text
    assert "numpy" not in text
