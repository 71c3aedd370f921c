"""What results/README.md says of dense prediction, in the same way as `findings.py`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from records import KAIMING, TRUNC, Study, interval, shows, span, study, text
from torch import Tensor, nn, tensor

from benchmark.datasets.shapes import generate

METHODS = ("Mimetic", "Impulse, norm 4")


def after(s: Study, row: str, epoch: int) -> pd.Series:
    """Mean IoU by seed."""
    return s.of(row, "record").map(lambda record: record["history"][epoch - 1]["test_miou"])


def mean_iou(answer: np.ndarray, masks: np.ndarray) -> float:
    kinds = range(4)
    both, any_of_them = (
        [join(answer == kind, masks == kind).sum() for kind in kinds] for join in (np.logical_and, np.logical_or)
    )
    return 100 * float(np.mean(np.array(both) / np.array(any_of_them)))


def from_shares() -> tuple[float, float]:
    """Mean IoU of who knows the shares of classes in each patch: all, or those of objects, whose kind is guessed."""
    masks = generate(6000)[1][5000:]
    shares_BCPP = np.stack([(masks == kind).reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)) for kind in range(4)], axis=1)
    enlarged: Tensor = nn.functional.interpolate(tensor(shares_BCPP), size=(32, 32), mode="bilinear")
    answer = enlarged.argmax(1).numpy()
    guessed = np.where(answer > 0, np.random.default_rng(0).integers(1, 4, masks.shape), 0)
    return mean_iou(answer, masks), mean_iou(guessed, masks)


def where_every_token_answers() -> Iterator[str]:
    s = study("segmentation-small")
    yield f"({len(s)} runs): 5,000 drawn images of discs, squares and triangles, ten epochs"
    (images,) = {record["dataset"]["train"] for record in s.runs["record"]}
    assert images == 5000
    ends = {row: after(s, row, 10) for row in s.rows}
    assert all((ends[row] == s.of(row, "miou")).all() for row in s.rows)
    gains = {row: ends[row] - ends[KAIMING] for row in METHODS}
    assert not any(gain.mean() > 0 for gain in gains.values())
    yield f"mimetic is at {interval(gains[METHODS[0]], 2)} points, and impulse ends lower"
    yield f"at {interval(gains[METHODS[1]], 2)}"
    assert shows(gains[METHODS[1]])
    known, guessed = from_shares()
    yield f"has {guessed:.1f}"
    yield f"the rows but trunc normal have {span([ends[row].mean() for row in s.rows if row != TRUNC])}"
    yield f"One that knows the kind, too, has {known:.1f}"
    first, second = (after(s, "Mimetic", epoch) - after(s, KAIMING, epoch) for epoch in (1, 2))
    assert shows(first)
    placebo = after(s, "Mimetic", 1) - after(s, "Mimetic, placebo", 1)
    yield f"After one epoch mimetic has {text(after(s, 'Mimetic', 1).mean())}, Kaiming uniform"
    yield f"{text(after(s, KAIMING, 1).mean())} ({interval(first)}) and its placebo"
    yield f"{text(after(s, 'Mimetic, placebo', 1).mean())} ({interval(placebo)}); after two it is {interval(second)}"
    slow = after(s, METHODS[1], 1) - after(s, KAIMING, 1)
    yield f"Impulse starts slower: {interval(slow)} after one epoch"
    third = after(s, METHODS[1], 3) - after(s, KAIMING, 3)
    yield f"{interval(third)} after three"
    yield f"Trunc normal ends {interval(ends[KAIMING] - ends[TRUNC], 2)[1:]} points below Kaiming uniform"


def table() -> Iterator[str]:
    """The rows of the table."""
    s = study("segmentation-small")
    for row in s.rows:
        own = s.of(row, "miou")
        gain = "" if row == KAIMING else f" {interval(own - s.of(KAIMING, 'miou'), 2)}"
        pattern = f" {interval(own - s.of(f'{row}, placebo', 'miou'), 2)}" if row in METHODS else ""
        yield f"| {row} | {text(own.mean(), 2)} ± {text(own.std(), 2)} |{gain} |{pattern} |"
