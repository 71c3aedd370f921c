"""What results/README.md says of the learning rates that were chosen, in the same way as `findings.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd
from records import REFERENCE, span, text

RATES = {3e-4: "3e-4", 1e-3: "1e-3", 3e-3: "3e-3"}
STRUCTURED = {"Mimetic", "Imp.-3", "ConViT"}


def runs(tuning: str = "standard-tuning", images: int = 8000) -> pd.DataFrame:
    """Validation top-1 by row, learning rate and seed."""
    records = [json.loads(path.read_bytes()) for path in (REFERENCE / tuning).glob("*.json")]
    rows = [
        (each["row"], each["spec"]["recipe"]["lr"], each["spec"]["seed"], each["history"][-1]["val_top1"])
        for each in records
    ]
    assert all(row["test_top1"] is None for each in records for row in each["history"])
    assert {each["dataset"]["val"] for each in records} == {2000}
    assert {each["dataset"]["train"] for each in records} == {images}
    return pd.DataFrame(rows, columns=["row", "lr", "seed", "top1"])


def table() -> Iterator[str]:
    """The rows of the table."""
    for row, of_row in runs().groupby("row"):
        cells = of_row.groupby("lr")["top1"].agg(["mean", "std"]).loc[list(RATES)]
        values = " | ".join(f"{mean:.2f} ± {std:.2f}" for mean, std in cells.to_numpy())
        yield f"| {row} | {values} |"


def which_learning_rate() -> Iterator[str]:
    every = runs()
    assert not set(every["seed"]) & set(range(8))
    yield f"({len(every)} runs)"
    yield "ten epochs on 8,000 images of CIFAR-10, top-1 on 2,000 other training images, two seeds"
    by_seed = every.pivot_table(index=["row", "seed"], columns="lr", values="top1")
    assert (by_seed.idxmax(axis=1) == 1e-3).all()
    means = by_seed.groupby("row").mean()
    leads = means[1e-3] - means.drop(columns=1e-3).max(axis=1)
    yield f"1e-3 is best for every row, at both seeds; by {span(leads.to_list())} points over the next"
    share = means[1e-3].mean() / 100
    yield f"One such top-1 has a standard error of {text(100 * (share * (1 - share) / 2000) ** 0.5)} points"
    second = means.drop(columns=1e-3).idxmax(axis=1)
    assert {row for row, lr in second.items() if lr == 3e-4} == STRUCTURED
    yield "The runner-up is 3e-4 for the methods with structure (mimetic, Imp.-3, ConViT) and 3e-3 for the bases"
