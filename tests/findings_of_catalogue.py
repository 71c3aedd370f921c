"""What results/README.md says of the catalogue, in the same way as `findings.py`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pandas as pd
from records import KAIMING, interval, study, text

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


def table() -> Iterator[str]:
    """The rows of the table, in their order."""
    s = study("catalogue-small")

    def cells(row: str) -> str:
        top1 = s.top1(row)
        (rate,) = {record["spec"]["recipe"]["lr"] for record in s.of(row, "record")}
        lr = {3e-4: "3e-4", 1e-3: "1e-3", 3e-3: "3e-3"}[rate]
        return f"| {row} | {lr} | {text(top1.mean(), 2)} ± {text(top1.std(), 2)} |"

    def difference(values: pd.Series | None) -> str:
        return "" if values is None else f" {interval(values, 2)}"

    rows = {**gains(), KAIMING: pd.Series([0.0])}
    for row in sorted(rows, key=lambda each: -rows[each].mean()):
        yield f"{cells(row)}{difference(gains().get(row))} |{difference(patterns().get(row))} |"
