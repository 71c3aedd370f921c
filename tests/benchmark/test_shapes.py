"""Shapes: their bits, and masks that are those of real discs, squares and triangles.

These bits were also measured once: levels of pixels and averages of patches do not tell the classes apart. As long as
the checksum below holds, that holds.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache

import numpy as np
import torch
from dataset_helpers import NOWHERE

from vitinit.benchmark.datasets import shapes
from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.datasets.shapes import SIZE, UNIT
from vitinit.benchmark.image_files.arrays import Split
from vitinit.benchmark.spec import DatasetSpec

AREA_OF_A_TRIANGLE = 3 * math.sqrt(3) / 4
"""Equilateral, by the square of the distance from its middle to a corner."""


@cache
def whole() -> tuple[np.ndarray, np.ndarray]:
    return shapes.generate(6000)


def test_the_images_are_the_same_bits_everywhere() -> None:
    images, masks = whole()
    assert hashlib.sha256(images.tobytes() + masks.tobytes()).hexdigest()[:16] == "a049716e365f93cc"
    first = shapes.generate.__wrapped__(1200)
    assert np.array_equal(first[0], images[:1200])
    assert np.array_equal(first[1], masks[:1200])


def distance(kind: int, row: float, column: float, radius: float, direction: np.ndarray) -> float:
    """From a point to the edge of a shape with the area of a disc, in pixels; negative inside (floating point)."""
    if kind == 1:
        return math.hypot(row, column) - radius
    angle = math.atan2(direction[1], direction[0])
    corners, reach = 4, radius * math.sqrt(math.pi / 2)  # of a square with the area of the disc
    first = angle + math.pi / 4
    if kind == 3:
        corners, reach, first = 3, radius * math.sqrt(math.pi / AREA_OF_A_TRIANGLE), angle
    at = [first + 2 * math.pi * number / corners for number in range(corners)]
    points = [(reach * math.cos(each), reach * math.sin(each)) for each in at]
    sides = zip(points, points[1:] + points[:1], strict=True)
    # corners run from rows to columns: inside lies on the same side of all sides
    return max(-((b[0] - a[0]) * (column - a[1]) - (b[1] - a[1]) * (row - a[0])) / math.dist(a, b) for a, b in sides)


def test_every_pixel_belongs_to_the_last_shape_that_it_lies_in() -> None:
    drawn = shapes.scenes(np.random.RandomState(7), 12)
    owners, near = shapes.owners(drawn), 0
    for scene in range(12):
        for row in range(SIZE):
            for column in range(SIZE):
                expected, doubtful = 0, False
                for place, kind in enumerate(drawn.kinds[scene]):
                    if kind:
                        y, x = drawn.centres[scene, place] / UNIT
                        radius = drawn.radii[scene, place] / UNIT
                        d = distance(kind, row + 0.5 - y, column + 0.5 - x, radius, drawn.directions[scene, place])
                        doubtful |= abs(d) < 1e-3
                        expected = place + 1 if d < 0 else expected
                near += doubtful
                assert doubtful or owners[scene, row, column] == expected, (scene, row, column)
    assert near < 0.001 * 12 * SIZE**2


def test_it_is_loaded_at_its_size_and_at_others_the_nearest_pixels_class() -> None:
    data = load(DatasetSpec(name="shapes", train_size=20, val_size=10, evaluate_on="val"), SIZE, NOWHERE)
    assert data.train.labels.shape == (20, SIZE, SIZE)
    assert data.held_out.labels.shape == (10, SIZE, SIZE)
    assert data.train.labels.dtype == torch.uint8
    images, masks = (torch.from_numpy(each[:4]) for each in whole())
    for side in (16, 48, 64):
        source = Split(images, masks)
        places = ((torch.arange(side) + 0.5) * SIZE / side).long()
        assert torch.equal(source.masks(side), masks[:, places][:, :, places])
        assert source.sized(side).shape == (4, 3, side, side)
