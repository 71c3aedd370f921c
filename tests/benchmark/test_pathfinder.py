"""Pathfinder: its bits, and that tracing solves it.

These bits were also measured once: to linear classifiers of levels, of 5 x 5 patches and of 8 x 8 pixels, and of the
distance between the dots, both classes look alike. As long as the checksums below hold, that holds.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import pytest
import torch
from dataset_helpers import NOWHERE, rows
from scipy import ndimage

from vitinit.benchmark.datasets import pathfinder
from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.datasets.pathfinder import DIFFICULTIES, DOT
from vitinit.benchmark.spec import DatasetSpec

IMAGES, TRAIN = 4000, 2000
"""So many of each difficulty, the first of which a classifier learns from."""
CHECKSUMS = {
    "pathfinder-easy": "4185be8db65a1318",
    "pathfinder-medium": "aba8278e055e5b96",
    "pathfinder-hard": "b98731e9770324d1",
}
"""Of these images; those that come later are drawn by the same code."""


WITHIN_AN_IMAGE = np.stack([np.zeros((3, 3)), np.ones((3, 3)), np.zeros((3, 3))])
"""Pixels touch their eight neighbours, and no other image."""


@cache
def grey(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels."""
    return pathfinder.generate(name, IMAGES)


@cache
def centres(name: str) -> np.ndarray:
    """The two dots of each image, N x 2 x 2: the only places where 3 x 3 pixels have a dot's level."""
    white = grey(name)[0] == DOT
    windows = np.lib.stride_tricks.sliding_window_view(white, (3, 3), axis=(1, 2))
    found = np.argwhere(windows.all((3, 4)))
    assert white.sum((1, 2)).tolist() == [18] * len(white)
    assert np.array_equal(found[:, 0], np.repeat(np.arange(len(white)), 2))
    return found[:, 1:].reshape(-1, 2, 2) + 1


each = pytest.mark.parametrize("name", DIFFICULTIES)


@pytest.mark.long
@each
def test_images_never_change(name: str) -> None:
    """Records of different days and machines are compared: the bits are part of the benchmark."""
    images, labels = grey(name)
    assert hashlib.sha256(images.tobytes() + labels.astype("<i8").tobytes()).hexdigest()[:16] == CHECKSUMS[name]


def test_all_of_it_is_drawn_without_the_global_generator_balanced_and_no_image_twice() -> None:
    name = "pathfinder-easy"
    before = np.random.get_state()[1].copy()
    assert np.array_equal(pathfinder.generate.__wrapped__(name, 100)[0], grey(name)[0][:100])
    assert np.array_equal(before, np.random.get_state()[1])
    data = load(DatasetSpec(name=name), 32, NOWHERE)
    images = torch.cat([data.train.images, data.held_out.images])
    labels = torch.cat([data.train.labels, data.held_out.labels])
    whole = images[:, 0].numpy().tobytes() + labels.numpy().astype("<i8").tobytes()
    assert hashlib.sha256(whole).hexdigest()[:16] == "e43f093c571f1595"
    for split in (data.train, data.held_out):
        assert 2 * int(split.labels.sum()) == len(split.labels)
    assert len(rows(images)) == len(images) == 12_000


@each
def test_tracing_solves_it(name: str) -> None:
    """Flood fill from dot to dot: made 2 x 2 pixels of each, ink touches across one missing pixel, not across two."""
    images, labels = grey(name)
    chosen = slice(TRAIN, None)
    ink = np.pad(images[chosen] > 0, ((0, 0), (0, 1), (0, 1)))
    pieces, _ = ndimage.label(ndimage.binary_dilation(ink, np.ones((1, 2, 2)), origin=(0, -1, -1)), WITHIN_AN_IMAGE)
    dots = centres(name)[chosen]
    number = np.arange(len(dots))
    first, second = (pieces[number, dots[:, dot, 0], dots[:, dot, 1]] for dot in (0, 1))
    assert np.mean((first == second) == labels[chosen]) > 0.95
