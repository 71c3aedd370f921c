"""Synthetic records of what runs start from: zero matrices, no images, models of one layer, runs that have not told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from synthetic_records import done, write

from vitinit.benchmark.records.record import RunRecord
from vitinit.initializers.report import LayerStart


def with_start(record: RunRecord, number: int = 0, images: bool = True) -> RunRecord:
    """The same with random numbers. Of every second run W_q of one head is 0, and of all heads in the second layer."""
    draw, model = random.Random(number), record.spec.model

    def product(zero: set[int]) -> dict[str, Any]:
        alive = [head not in zero for head in range(model.heads)]
        return {
            "norm": [draw.uniform(0.1, 9) * one for one in alive],
            "rank": [draw.randint(1, 16) * one for one in alive],
            "condition": [10 ** draw.uniform(0, 6) if one else None for one in alive],
        }

    start = []
    for layer in range(model.depth):
        zero = ({0} if layer != 1 else set(range(model.heads))) if number % 2 else set()
        attention = {name: [draw.uniform(0, 4) for _ in range(model.heads)] for name in ("entropy", "distance")}
        spectra = {"query_key": product(zero), "value_path": product(set())}
        start.append(LayerStart(layer=f"blocks.{layer}", **spectra, **(attention if images else {})))
    return record.model_copy(update={"init": record.init.model_copy(update={"start": start})})


def starts(root: Path) -> None:
    rows = ("Kaiming uniform", "Mimetic")
    write(root, *(with_start(done(row, seed=seed), seed + i) for i, row in enumerate(rows) for seed in range(3)))
    write(root, *(with_start(done("Mimetic", seed=seed, dataset="svhn"), 7 + seed) for seed in range(2)))
    write(root, with_start(done("Trunc normal"), images=False), with_start(done("Imp.-3", depth=1)))
    write(root, done("Imp.-5"), done("Kaiming uniform", seed=9))


STUDIES = {"starts": starts}
