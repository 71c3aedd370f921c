"""What results/README.md says of the catalogue, in the same way as `findings.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import findings_of_tuning
import pandas as pd
from records import KAIMING, REFERENCE, interval, shows, span, study, text

DEIT, GPT2 = "DeiT", "GPT-2's scale"
NO_PLACEBO = {"Zero query", "Zero branch"}


def base(row: str) -> str:
    """What a row's gain is counted from: ConViT's own base, of all others Kaiming uniform."""
    return DEIT if row.startswith("ConViT") else KAIMING


@cache
def gains() -> dict[str, pd.Series]:
    """By row, the largest first; placebos are left out."""
    s = study("catalogue-small")
    found = {row: s.gain(row, base(row)) for row in s.rows if row != KAIMING and not row.endswith(", placebo")}
    return dict(sorted(found.items(), key=lambda each: -each[1].mean()))


@cache
def patterns() -> dict[str, pd.Series]:
    """Gain over the own placebo, by row."""
    s = study("catalogue-small")
    return {row: s.gain(row, f"{row}, placebo") for row in gains() if f"{row}, placebo" in s.rows}


def what_of_the_catalogue_helps() -> Iterator[str]:
    """The whole part."""
    s, gained, beside = study("catalogue-small"), gains(), patterns()
    sizes = [record["parameters"] for record in s.runs["record"]]
    assert {len(run["history"]) for run in s.runs["record"]} == {5}
    yield f"({len(s)} runs): every base and every method that fits"
    yield f"one small ViT ({min(sizes):,} to {max(sizes):,} parameters)"
    assert len(s.seeds) == 8
    yield "five epochs on 5,000 images of CIFAR-10, drawn anew at each seed, eight seeds"
    intervals = len(gained) + len(beside)
    assert round(intervals / 20) == 2
    yield f"about two of the {intervals} intervals in the table would still exclude 0"
    assert list(gained)[:3] == ["Mimetic, MLP mean", "Mimetic", "IDInit"]
    assert all((gained[row] > 0).all() for row in ("Mimetic", "IDInit"))
    assert (beside["Mimetic"] > 0).all()
    yield f"{interval(gained['Mimetic'], 2)} over Kaiming uniform and {interval(beside['Mimetic'], 2)} over its placebo"
    yield f"it is {interval(s.gain('Mimetic', 'IDInit'), 2)} above IDInit"
    more = s.gain("Mimetic, MLP mean", "Mimetic")
    assert not shows(more)
    yield f"adds {interval(more, 2)}"
    others = [row for row in beside if not row.startswith("Mimetic")]
    assert len(others) == 8
    assert [row for row in others if shows(beside[row])] == ["LSUV"]
    yield "Of the eight other rows with a placebo only LSUV is above it"
    yield f"({interval(beside['LSUV'], 2)}); but that placebo has another learning rate"
    tuned = means_of_tuning()
    assert (tuned.loc["LSUV, placebo", [3e-3, 1e-2]] > tuned.loc["LSUV", [3e-3, 1e-2]]).all()
    yield f"LSUV is not told apart from its base ({interval(gained['LSUV'], 2)})"
    assert not shows(gained["LSUV"])
    for row, name in (
        ("Impulse, norm 4", "impulse of norm 4 gains {} and its placebo {}"),
        ("Imp.-3", "Imp.-3 {} and {}"),
        ("ConViT", "ConViT over DeiT {} and {}"),
    ):
        placebo = s.gain(f"{row}, placebo", base(row))
        assert shows(gained[row])
        assert shows(placebo)
        yield name.format(interval(gained[row], 2)[1:], interval(placebo, 2)[1:])
    yield f"impulse of norm 4 over its placebo is {interval(beside['Impulse, norm 4'], 2).partition(' ')[2]}"
    yield "fix_init and GPT-2's scale only divide weights"
    assert (s.gain("MoCo v3", "JAX ViT") > 0).all()
    yield f"IDInit gains {interval(gained['IDInit'], 2)[1:]}, ZerO {interval(gained['ZerO'], 2)}"
    orthogonal = [row for row in gained if row.startswith("Orthogonal")]
    means = [gained[row].mean() for row in orthogonal]
    assert [row for row in orthogonal if not shows(gained[row])] == ["Orthogonal, fused"]
    yield f"the three orthogonal ones {span(means)} points above the default"
    yield "one of them with an interval that contains 0"
    small = ["JAX ViT", "JAX ViT, fused", "torchvision", "MAE"]
    assert all(shows(gained[row]) for row in small)
    yield f"JAX, torchvision and MAE by {span([-gained[row].mean() for row in small])} points"
    moco = s.gain("MoCo v3", "JAX ViT")
    yield "MoCo v3, which draws its blocks as JAX does"
    yield f"is {interval(moco, 2)[1:]} points above JAX"
    yield f"Trunc normal (std 0.02), small everywhere, loses {interval(-gained['Trunc normal'], 2)[1:]}"
    assert not shows(gained["Trunc normal, Kaiming's scale"])
    for row, name in (("Sinusoidal", "Sinusoidal"), ("LayerScale", "LayerScale")):
        assert shows(gained[row])
        yield f"{name} {interval(gained[row], 2)}"
    yield f"Zero branch {interval(gained['Zero branch'], 2)}"
    quiet = ["DCT", "Conditioned", "fix_init", "Zero query"]
    assert not any(shows(gained[row]) for row in quiet)
    means = [gained[row].mean() for row in quiet]
    yield "DCT, conditioned attention, fix_init and zero query are not told apart"
    yield f"from their base ({span(means, 2)})"
    assert shows(gained[GPT2])
    yield f"interval of GPT-2's scale excludes 0, with {interval(gained[GPT2], 2)[1:]}"
    earlier = study("standard-mechanism")
    assert {record["spec"]["recipe"]["lr"] for record in earlier.runs["record"]} == {1e-3}
    yield "at 1e-3 (with other seeds and images)"
    for row in ("Mimetic", "Impulse, norm 4"):
        was, now = earlier.gain(row, KAIMING).mean(), gained[row].mean()
        assert was > now
        yield {
            "Mimetic": f"Mimetic gains {text(now)} here, {text(was)} in",
            "Impulse, norm 4": f"impulse of norm 4 {text(now)} and {text(was)}",
        }[row]
    over = tuned - tuned.loc[KAIMING]
    (one, three), (low, high) = (over.loc[row, [1e-3, 3e-3]] for row in ("Mimetic", "Impulse, norm 4"))
    yield f"mimetic {text(one, sign=True)} at 1e-3 and {text(three, sign=True)} at 3e-3"
    yield f"impulse {text(low, sign=True)} and {text(high, sign=True)}"
    yield from learning_rates()


@cache
def means_of_tuning() -> pd.DataFrame:
    """Validation top-1 by row and learning rate."""
    every = findings_of_tuning.runs("catalogue-small-tuning", images=5000)
    by_seed = every.pivot_table(index=["row", "seed"], columns="lr", values="top1")
    return by_seed.groupby("row").mean()


def learning_rates() -> Iterator[str]:
    """How they were chosen."""
    every = findings_of_tuning.runs("catalogue-small-tuning", images=5000)
    assert not set(every["seed"]) & set(study("catalogue-small").seeds)
    yield f"({len(every)} runs, two seeds of their own, 2,000 validation images)"
    folder = REFERENCE / "catalogue-small-tuning"
    records = [json.loads(path.read_bytes()) for path in folder.glob("*.json")]
    later = [each["environment"]["commit"] for each in records if each["spec"]["recipe"]["lr"] == 1e-2]
    assert len(set(later)) == 1
    yield f"{len(records) - len(later)} runs of three rates were to choose"
    yield f"so {len(later)} more tried 1e-2"
    means = means_of_tuning()
    best = means.idxmax(axis=1)
    assert (means[[3e-4, 1e-3, 3e-3]].idxmax(axis=1) == 3e-3).all(), "of the first three"
    others = {row: means.loc[row, 1e-2] - means.loc[row, 3e-3] for row in best.index[best == 1e-2]}
    assert set(others) == {"LSUV, placebo", "LayerScale"}
    yield f"3e-3 is best for {(best == 3e-3).sum()} of {len(best)} rows"
    yield f"1e-2 for LSUV's placebo and for LayerScale, by {span(list(others.values()))} points"
    for row, value in best.items():
        assert {record["spec"]["recipe"]["lr"] for record in study("catalogue-small").of(row, "record")} == {value}
    small = means.max(axis=1) - means[1e-3]
    yield f"With 1e-3, the recipe's own, every row would have {span(small.to_list())} points less"


def table() -> Iterator[str]:
    """The rows of the table, in their order."""
    s = study("catalogue-small")

    def cells(row: str) -> str:
        top1 = s.top1(row)
        (rate,) = {record["spec"]["recipe"]["lr"] for record in s.of(row, "record")}
        lr = {3e-3: "3e-3", 1e-2: "1e-2"}[rate]
        return f"| {row} | {lr} | {text(top1.mean(), 2)} ± {text(top1.std(), 2)} |"

    def difference(values: pd.Series | None) -> str:
        return "" if values is None else f" {interval(values, 2)}"

    rows = {**gains(), KAIMING: pd.Series([0.0])}
    for row in sorted(rows, key=lambda each: -rows[each].mean()):
        yield f"{cells(row)}{difference(gains().get(row))} |{difference(patterns().get(row))} |"
