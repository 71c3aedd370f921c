"""Shapes: masks are those of real discs, squares and triangles, and nothing but the outline tells them apart."""

from __future__ import annotations

import hashlib
import math
from functools import cache

import numpy as np
import pytest
import torch
from dataset_helpers import NOWHERE
from torch.nn import functional as F

from vitinit.benchmark.datasets import shapes
from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.datasets.shapes import CLASSES, SIZE, UNIT
from vitinit.benchmark.image_files.arrays import IGNORED, Data, in_memory
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


def test_a_mask_is_the_kind_of_what_a_pixel_shows() -> None:
    random = np.random.RandomState(1)
    drawn = shapes.scenes(random, shapes.BLOCK)
    kinds = np.concatenate([np.zeros((shapes.BLOCK, 1), int), drawn.kinds], axis=1)
    found = [kinds[number][owner] for number, owner in enumerate(shapes.owners(drawn))]
    assert np.array_equal(whole()[1][: shapes.BLOCK], found)


def test_no_pixel_by_itself_tells_its_class() -> None:
    images, masks = whole()
    shares = np.bincount(masks.ravel()) / masks.size
    assert shares[1:] == pytest.approx([shares[1:].mean()] * 3, rel=0.03), "equally large, and equally often"
    levels = images.transpose(0, 2, 3, 1)
    for channel in range(3):
        means = [levels[masks == kind][:, channel].mean() for kind in range(len(CLASSES))]
        spreads = [levels[masks == kind][:, channel].std() for kind in range(len(CLASSES))]
        assert max(means) - min(means) < 2.5
        assert max(spreads) - min(spreads) < 2.5
    objects = shapes.scenes(np.random.RandomState(0), 4000)
    for kind in (1, 2, 3):
        its = objects.kinds == kind
        assert objects.radii[its].mean() == pytest.approx(objects.radii[objects.kinds > 0].mean(), rel=0.01)


def test_it_is_loaded_at_its_size_and_at_others_the_nearest_pixels_class() -> None:
    data = load(DatasetSpec(name="shapes", train_size=20, val_size=10, evaluate_on="val"), SIZE, NOWHERE)
    assert isinstance(data, Data)
    assert data.train.labels.shape == (20, SIZE, SIZE)
    assert data.held_out.labels.shape == (10, SIZE, SIZE)
    assert data.train.labels.dtype == torch.uint8
    images, masks = (torch.from_numpy(each[:4]) for each in whole())
    for side in (16, 48, 64):
        source = in_memory(images, masks, side)
        places = ((torch.arange(side) + 0.5) * SIZE / side).long()
        assert torch.equal(source.labels, masks[:, places][:, :, places])
        assert source.images(torch.arange(4)).shape == (4, 3, side, side)


def test_the_checksum_covers_the_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = DatasetSpec(name="shapes", train_size=20)
    before = load(spec, SIZE, NOWHERE)
    images, masks = whole()
    changed = masks.copy()
    changed[:5000, 0, 0] = IGNORED
    monkeypatch.setattr(shapes, "generate", lambda count: (images, changed))
    after = load(spec, SIZE, NOWHERE)
    assert isinstance(before, Data)
    assert isinstance(after, Data)
    assert torch.equal(before.train.images, after.train.images)
    assert before.checksum != after.checksum


def test_a_subset_holds_the_smaller_one_and_a_redrawn_one_is_another() -> None:
    small, large, redrawn = (
        load(DatasetSpec(name="shapes", train_size=size, train_draw=kind), SIZE, NOWHERE, draw)
        for size, kind, draw in ((50, "fixed", 0), (200, "fixed", 0), (200, "seed", 3))
    )
    sets = [{image.numpy().tobytes() for image in data.train.images} for data in (small, large, redrawn)]
    assert sets[0] < sets[1]
    assert sets[1] != sets[2]


def test_averages_of_a_patch_hardly_tell_what_is_in_it() -> None:
    """Nearest mean of the level and its spread in 4 x 4 patches, without neighbours: near to background everywhere."""
    images, masks = (torch.from_numpy(each[:2000]) for each in whole())
    patches = F.unfold(images.float(), 4, stride=4).unflatten(1, (3, 16))  # N x 3 x 16 x 64
    features = torch.cat([patches.mean(2), patches.std(2)], dim=1).transpose(1, 2).flatten(0, 1)
    kinds = F.unfold(masks[:, None].float(), 4, stride=4).transpose(1, 2).flatten(0, 1)
    pure = (kinds == kinds[:, :1]).all(1) & (kinds[:, 0] > 0)
    x, y = features[pure].double(), kinds[pure, 0].long()
    half = len(x) // 2
    means = torch.stack([x[:half][y[:half] == kind].mean(0) for kind in (1, 2, 3)])
    found = torch.cdist(x[half:], means).argmin(1) + 1
    assert abs(float((found == y[half:]).double().mean()) - 1 / 3) < 0.05
