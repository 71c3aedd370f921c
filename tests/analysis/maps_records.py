"""Synthetic records with attention maps and Gram matrices beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from synthetic_records import done, write

from vitinit.benchmark.records.maps import AttentionMaps, maps_to_bytes
from vitinit.benchmark.records.store import maps_path

TOKENS, DEPTH = 64, 4
"""Tokens (8 x 8) and layers of the synthetic records."""


def keep(root: Path, row: str, seed: int = 0, weights: str = "a" * 64) -> tuple[AttentionMaps, Path]:
    """Write a run whose weights are all a, and random maps: shares of attention, Gram matrices of two batches."""
    record = done(row, seed=seed).model_copy(update={"weights": "a" * 64})
    draw, heads = np.random.default_rng(sum(row.encode()) + seed), record.spec.model.heads
    shares = draw.dirichlet(np.ones(TOKENS), size=(2, DEPTH, heads, TOKENS)).astype(np.float16)
    features = draw.normal(size=(2, DEPTH, 2, 12, 30)).cumsum(1)
    maps = AttentionMaps((0, 3), shares, (features @ features.swapaxes(-1, -2)).astype(np.float32), 24, weights)
    path = maps_path(write(root, record), record.study, record.run_id)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(maps_to_bytes(maps))
    return maps, path


def mapped(root: Path) -> dict[tuple[str, int], AttentionMaps]:
    """By row and seed: Mimetic at two seeds, Trunc normal and ConViT at seed 1 only; Imp.-3 has none."""
    write(root, *(done(row, seed=seed) for row in ("Trunc normal", "Imp.-3") for seed in (0, 1)))
    runs = [("Trunc normal", 1), ("Mimetic", 0), ("Mimetic", 1), ("ConViT", 1)]
    return {run: keep(root, *run)[0] for run in runs}


STUDIES = {"mapped": mapped}
"""For `contract_studies`."""
