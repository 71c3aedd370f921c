"""What results/README.md says of the catalogue, in the same way as `findings.py`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import findings_of_tuning
import pandas as pd
from records import KAIMING, interval, span, study, text

DEIT = "DeiT"
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


def learning_rates() -> Iterator[str]:
    """How they were chosen."""
    every = findings_of_tuning.runs("catalogue-small-tuning", images=5000)
    assert not set(every["seed"]) & set(study("catalogue-small").seeds)
    yield f"({len(every)} runs, two seeds of their own, 2,000 validation images)"
    by_seed = every.pivot_table(index=["row", "seed"], columns="lr", values="top1")
    means = by_seed.groupby("row").mean()
    best = means.idxmax(axis=1)
    assert (means[[3e-4, 1e-3, 3e-3]].idxmax(axis=1) == 3e-3).all(), "of the first three"
    others = {row: means.loc[row, 1e-2] - means.loc[row, 3e-3] for row in best.index[best == 1e-2]}
    assert set(others) == {"LSUV, placebo", "LayerScale"}
    yield f"3e-3 is best for {(best == 3e-3).sum()} of {len(best)} rows"
    yield f"1e-2 for LSUV's placebo and for LayerScale, by {span(list(others.values()))} points"
    for row, value in best.items():
        assert {record["spec"]["recipe"]["lr"] for record in study("catalogue-small").of(row, "record")} == {value}
    small = means[3e-3] - means[1e-3]
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
