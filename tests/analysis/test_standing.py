"""Where a method stands: what is claimed and what is not, and the power worked out by simulation."""

from __future__ import annotations

import itertools
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats
from synthetic_records import done, failed, finished, spec

from analysis import choose, standing
from analysis.frame import LOCAL, REFERENCE, Study, load
from analysis.stats import could_claim, could_show, paired
from benchmark.records.store import Layout, Store

BASE = np.array([40.0, 41.0, 39.0, 42.0, 40.0, 41.0, 38.0, 43.0, 40.0, 41.0])
NOISE = np.array([0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.3, -0.3, 0.1])


BOTH = Layout(contrasts=[("Mine", "Mine's base"), ("Mine", "Mine, placebo")])


def study(root: Path, mine: np.ndarray, placebo: np.ndarray, layout: Layout = BOTH):
    store = Store(root)
    rows = {"Mine's base": BASE[: len(mine)], "Mine": mine, "Mine, placebo": placebo}
    for row, values in rows.items():
        for seed, top1 in enumerate(values):
            label = {"Mine's base": "Kaiming uniform"}.get(row, "Mimetic")
            params = {"seed_of_row": row}
            which = {} if label == "Kaiming uniform" else {"params": params}
            store.write(done(label, (round(float(top1), 2),), study="rank-mine", label=row, seed=seed, **which))
    store.write_layout("rank-mine", layout)
    return load([root], "rank-mine")


@pytest.mark.parametrize(
    ("gain", "over_placebo", "n", "says"),
    [
        (3.0, 3.0, 10, ": norms and singular values do not explain all of it"),
        (3.0, 0.0, 10, "That it is the pattern that helps is not shown"),
        (3.0, -3.0, 10, "its placebo gains more"),
        (0.0, 0.0, 10, "No gain over its own base is shown"),
        (-3.0, -3.0, 10, "worse than its own base"),
        (3.0, 3.0, 5, "too few for any claim: p cannot go under 0.12"),
    ],
)
def test_what_is_claimed(tmp_path: Path, gain: float, over_placebo: float, n: int, says: str) -> None:
    mine = (BASE + gain + NOISE)[:n]
    found = standing.standing(study(tmp_path, mine, mine - over_placebo - NOISE[::-1][:n]))
    assert says in found.verdict
    assert found.base.mean == pytest.approx(float(np.mean(mine - BASE[:n])))


def test_a_placebo_of_few_seeds_takes_no_claim_from_the_base(tmp_path: Path) -> None:
    mine = BASE + 3.0 + NOISE
    few = study(tmp_path, mine, (mine - 3.0)[:5])
    found = standing.standing(few)
    assert found.verdict == "It gains over its own base. 5 seeds of its placebo are too few to say more."
    printed = "\n".join(standing.lines(found, few, None, ""))
    assert "p = 0.004  n = 10" in printed


def test_a_placebo_without_runs_takes_no_claim_from_the_base(tmp_path: Path) -> None:
    mine = BASE + 3.0 + NOISE
    alone = study(tmp_path, mine, np.array([]))
    found = standing.standing(alone)
    assert found.verdict == "It gains over its own base. Its placebo has no finished run of a common seed."
    printed = "\n".join(standing.lines(found, alone, None, ""))
    assert "p = 0.004  n = 10" in printed, "2 of 2**10 signs, times two comparisons"
    assert "minus its placebo" not in printed


def test_a_p_is_never_zero(tmp_path: Path) -> None:
    values = np.concatenate([BASE, BASE])[:12]
    store = Store(tmp_path)
    for row, top1 in (("Kaiming uniform", values), ("Mimetic", values + 3.0)):
        for seed, each in enumerate(top1):
            store.write(done(row, (float(each),), study="rank-mine", seed=seed))
    store.write_layout("rank-mine", Layout(contrasts=[("Mimetic", "Kaiming uniform")]))
    alone = load([tmp_path], "rank-mine")
    assert "p < 0.001  n = 12" in "\n".join(standing.lines(standing.standing(alone), alone, None, ""))


def test_no_difference_at_all_is_no_gain(tmp_path: Path) -> None:
    found = standing.standing(study(tmp_path, BASE, BASE))
    assert found.p == (1.0, 1.0)
    assert "No gain" in found.verdict


def test_the_difference_that_could_be_shown_has_the_power_it_says() -> None:
    import pandas as pd

    values, zeros = pd.Series(NOISE), pd.Series(np.zeros(10))
    pair = paired(values, zeros)
    assert pair
    seen = could_show(pair)
    assert seen
    generator = np.random.default_rng(0)
    samples = generator.normal(seen, NOISE.std(ddof=1), size=(20_000, 10))
    power = (scipy_stats.ttest_1samp(samples, 0.0, axis=1).pvalue < 0.05).mean()
    assert power == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("level", [0.05, 0.025])
def test_the_difference_that_could_be_claimed_has_the_power_it_says(level: float) -> None:
    import pandas as pd

    pair = paired(pd.Series(NOISE), pd.Series(np.zeros(10)))
    assert pair
    claimed = could_claim(pair, level)
    assert claimed
    samples = np.random.default_rng(1).normal(claimed, NOISE.std(ddof=1), size=(5_000, 10))
    signs = np.array(list(itertools.product((-1, 1), repeat=10)))
    p = (np.abs(samples @ signs.T) >= np.abs(samples.sum(axis=1, keepdims=True)) - 1e-9).mean(axis=1)
    assert (p <= level).mean() == pytest.approx(0.8, abs=0.04)
    assert could_claim(pair, 2.0**-10) is None


def test_it_stands_among_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = study(tmp_path / "mine", BASE + 3 + NOISE, BASE + NOISE[::-1])
    beside = Store(tmp_path / "reference")
    for seed in range(5):
        for row, top1 in (("Kaiming uniform", 40.0), ("Mimetic", 45.0 + seed), ("Imp.-3", 41.0)):
            environment = {"processor": "Other", "packages": {"torch": "2.6.0"}}
            beside.write(done(row, (top1,), study="tier", seed=seed, environment=environment))
    arguments = ["rank-mine", "--results", str(tmp_path / "mine"), "--beside", str(tmp_path / "reference/tier")]
    assert standing.main([*arguments, "--more", "vitinit rank Mine --budget 2h"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == f"Mine: {standing.standing(ours).verdict}"
    at = [printed.index(text) for text in ("+7.00  Mimetic", "> Mine (n = 10)", "+1.00  Imp.-3")]
    assert at == sorted(at)
    assert "There: Other, torch 2.6.0" in printed
    assert "More seeds: vitinit rank Mine --budget 2h" in printed
    assert max(map(len, printed.splitlines())) <= 120


def test_another_study_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(tmp_path).write(done("Mimetic", study="plain"))
    assert standing.main(["plain", "--results", str(tmp_path)]) == 2
    assert "vitinit rank" in capsys.readouterr().err


def test_without_a_placebo_the_base_alone_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(tmp_path, BASE + 3 + NOISE, BASE, Layout(contrasts=[("Mine", "Mine's base")]))
    assert standing.main(["rank-mine", "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "Mine: It gains over its own base. Whether it is a pattern that helps no placebo can tell."
    )
    assert "minus its placebo" not in printed
    assert f"p = {2 / 2**10:.3f}" in printed, "one comparison: no correction"


def test_no_power_is_named_where_nothing_can_be_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n, power in ((5, False), (10, True)):
        study(tmp_path / str(n), (BASE + 3 + NOISE)[:n], BASE[:n])
        assert standing.main(["rank-mine", "--results", str(tmp_path / str(n)), "--more", "x"]) == 0
        printed = capsys.readouterr().out
        assert ("the test would find" in printed) == power
        assert ("p is that of one look" in printed) == power


def printed(study: Study, beside: Study | None = None) -> str:
    return "\n".join(standing.lines(standing.standing(study), study, beside, ""))


def test_seeds_that_failed_are_said_beside_the_verdict_and_in_latex(tmp_path: Path) -> None:
    mine = BASE + 3.0 + NOISE
    study(tmp_path, mine[:8], mine[:8] - 3.0 - NOISE[:8])
    for seed in (9, 8):
        run = failed("Mimetic", study="rank-mine", seed=seed, epochs=1, params={"seed_of_row": "Mine"})
        Store(tmp_path).write(run.model_copy(update={"row": "Mine", "error": "Diverged"}))
    lines = printed(load([tmp_path], "rank-mine")).splitlines()
    assert lines[0].startswith("Mine: It gains over its own base, and over its placebo")
    assert lines[1] == "But Mine failed at seeds 8, 9 (Diverged): not in these numbers."
    assert "LaTeX (top-1 (n = 8, 2 failed), minus base (n = 8), minus placebo (n = 8)):" in lines


def test_a_method_that_failed_at_every_seed_is_said_with_the_seeds(tmp_path: Path, capsys) -> None:
    for seed in range(3):
        Store(tmp_path).write(done("Kaiming uniform", (40.0,), study="rank-mine", label="Mine's base", seed=seed))
        run = failed("Mimetic", study="rank-mine", seed=seed, epochs=1)
        error = "OutOfMemoryError" if seed == 1 else "Diverged"
        Store(tmp_path).write(run.model_copy(update={"row": "Mine", "error": error}))
    Store(tmp_path).write_layout("rank-mine", Layout(contrasts=[("Mine", "Mine's base")]))
    assert standing.main(["rank-mine", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "Mine and Mine's base have no finished run of a common seed" in said
    assert said.endswith("; Mine failed at seeds 0, 2 (Diverged); Mine failed at seed 1 (OutOfMemoryError)\n")


def test_the_help_names_the_default_of_results(capsys: pytest.CaptureFixture[str]) -> None:
    for module in (choose, standing):
        with pytest.raises(SystemExit, match="0"):
            module.main(["--help"])
        said = " ".join(capsys.readouterr().out.split())
        assert f"(default: {LOCAL} when it holds records, otherwise {REFERENCE})" in said


def test_one_seed_is_too_few(tmp_path: Path) -> None:
    found = standing.standing(study(tmp_path, BASE[:1] + 3.0, BASE[:1]))
    assert found.verdict.startswith("1 seed is too few for any claim: p cannot go under ")


def test_a_file_that_changed_between_the_runs_is_said(tmp_path: Path) -> None:
    for row, label, top1 in (("Kaiming uniform", "Mine's base", BASE), ("Mimetic", "Mine", BASE + 3 + NOISE)):
        for seed, each in enumerate(top1):
            own = {"my:Mine": "a" if seed < 6 else "b"} if label == "Mine" else {}
            environment = {"initializers": {"kaiming_uniform": "c", **own}}
            which = {"study": "rank-mine", "label": label, "seed": seed, "environment": environment}
            Store(tmp_path).write(done(row, (float(each),), **which))
    Store(tmp_path).write_layout("rank-mine", Layout(contrasts=[("Mine", "Mine's base")]))
    _, second, third, *_ = printed(load([tmp_path], "rank-mine")).splitlines()
    assert second == "But the file of my:Mine changed between the runs: these numbers mix 2 versions of it."
    assert third == ""


def test_gains_of_another_model_or_recipe_are_not_listed(tmp_path: Path) -> None:
    ours = study(tmp_path / "mine", BASE + 3 + NOISE, BASE + NOISE[::-1])
    beside = Store(tmp_path / "reference")
    settings = {"same": {}, "wide": {"width": 96}, "learned": {"position": "learned"}}
    for seed in range(3):
        for name, model in settings.items():
            for row, top1 in (("Kaiming uniform", 40.0), ("Mimetic", 45.0)):
                beside.write(done(row, (top1,), study="tier", label=f"{row}, {name}", seed=seed, **model))
            beside.write(done("Imp.-3", (41.0, 42.0), study="longer", seed=seed, **model))
            beside.write(done("Kaiming uniform", (40.0, 41.0), study="longer", seed=seed, **model))
    text = printed(ours, load([tmp_path / "reference"], "tier"))
    assert "+5.00  Mimetic, same (n = 3)" in text
    assert "wide" not in text
    assert "learned" not in text
    assert "longer holds no gains over the base kaiming_uniform with this model" in printed(
        ours, load([tmp_path / "reference"], "longer")
    )


def on(processor: str) -> dict[str, Any]:
    return {"processor": processor, "packages": {"torch": "2.6.0"}}


@pytest.mark.parametrize(
    ("here", "there", "says", "not_said"),
    [
        (("A", "A"), ("A", "A"), [], ["machine"]),
        (("A", "A"), ("B", "B"), ["Here: A, torch 2.6.0. There: B, torch 2.6.0.", "within one machine"], ["In "]),
        (("A", "A"), ("B", "A"), ["In tier the runs of seed 0 come from more than one"], ["within one machine"]),
        (("A", "B"), ("A", "B"), ["In rank-mine the runs of seed 0", "In tier the runs"], ["Here:", "within one"]),
    ],
)
def test_machines_are_compared_seed_by_seed(
    here: tuple[str, str], there: tuple[str, str], says: list[str], not_said: list[str], tmp_path: Path
) -> None:
    """Of the base and of the method of seed 0; seeds 1 and 2 are on the base's."""
    for name, (first, second) in (("rank-mine", here), ("tier", there)):
        for seed in range(3):
            for row, processor in (("Kaiming uniform", first), ("Mimetic", first if seed else second)):
                Store(tmp_path).write(done(row, (40.0,), study=name, seed=seed, environment=on(processor)))
        Store(tmp_path).write_layout(name, Layout(contrasts=[("Mimetic", "Kaiming uniform")]))
    text = printed(load([tmp_path], "rank-mine"), load([tmp_path], "tier"))
    assert [each for each in says if each not in text] == []
    assert [each for each in not_said if each in text] == []


def test_any_library_of_another_version_is_named_and_no_other(tmp_path: Path) -> None:
    versions = {"rank-mine": {"timm": "1.0.31", "vitinit": "0.2"}, "tier": {"timm": "0.6.0", "vitinit": "0.1"}}
    for name, its in versions.items():
        packages = {"torch": "2.6.0", "numpy": "2.4.6", **its}
        for seed, row in product(range(3), ("Kaiming uniform", "Mimetic")):
            environment = {"processor": "A", "packages": packages}
            Store(tmp_path).write(done(row, (40.0,), study=name, seed=seed, environment=environment))
        Store(tmp_path).write_layout(name, Layout(contrasts=[("Mimetic", "Kaiming uniform")]))
    text = printed(load([tmp_path], "rank-mine"), load([tmp_path], "tier"))
    assert "Here: A, torch 2.6.0, timm 1.0.31. There: A, torch 2.6.0, timm 0.6.0." in text
    assert "numpy" not in text


def test_gains_over_another_base_are_not_listed(tmp_path: Path) -> None:
    ours = study(tmp_path / "mine", BASE + 3 + NOISE, BASE + NOISE[::-1])
    for seed in range(3):
        for row in ("Trunc normal", "Mimetic"):
            run = spec(row, seed=seed, epochs=1).model_copy(update={"base": spec("Trunc normal").base})
            Store(tmp_path).write(finished(run, (40.0,), study="tier", row=row))
    text = printed(ours, load([tmp_path], "tier"))
    assert "  Mimetic (n = 3)" not in text
    assert "tier holds no gains over the base kaiming_uniform" in text
