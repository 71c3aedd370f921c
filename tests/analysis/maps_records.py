"""Synthetic records with attention maps and Gram matrices beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from synthetic_records import done, write

from vitinit.benchmark.records.maps import AttentionMaps, maps_to_bytes
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import maps_path

TOKENS, DEPTH = 64, 4
"""Of the synthetic records: 8 x 8 tokens."""


def recorded(row: str, seed: int = 0, study: str = "small") -> RunRecord:
    """A run whose weights are all a."""
    return done(row, seed=seed, study=study).model_copy(update={"weights": "a" * 64})


def keep(
    root: Path, row: str, seed: int, at: tuple[int, ...] = (0, 3), weights: str = "a" * 64, study: str = "small"
) -> AttentionMaps:
    """The run and random maps of it: shares of attention, and Gram matrices of two batches of twelve images."""
    record, draw = recorded(row, seed, study), np.random.default_rng(sum(row.encode()) + seed)
    write(root, record)
    heads = record.spec.model.heads
    shares = draw.dirichlet(np.ones(TOKENS), size=(len(at), DEPTH, heads, TOKENS)).astype(np.float16)
    features = draw.normal(size=(len(at), DEPTH, 2, 12, 30)).cumsum(1)
    grams = (features @ features.swapaxes(-1, -2)).astype(np.float32)
    maps = AttentionMaps(at, shares, grams, 24, weights)
    path = maps_path(root, record.study, record.run_id)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(maps_to_bytes(maps))
    return maps


def mapped(root: Path) -> dict[tuple[str, int], AttentionMaps]:
    """By row and seed: Mimetic at three epochs, Trunc normal and ConViT at seed 1 only; Imp.-3 has none."""
    write(root, *(recorded(row, seed) for row in ("Mimetic", "Trunc normal", "Imp.-3") for seed in (0, 1)))
    its = {("Trunc normal", 1): (0, 3), ("Mimetic", 0): (0, 1, 3), ("Mimetic", 1): (0, 1, 3), ("ConViT", 1): (0, 3)}
    return {(row, seed): keep(root, row, seed, at) for (row, seed), at in its.items()}


STUDIES = {"mapped": mapped}
"""For `contract_studies`."""
