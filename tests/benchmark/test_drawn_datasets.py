"""Datasets that are drawn: their bits, and masks of other sizes.

These bits were also measured once. As long as the checksums below hold, that holds:

- Shapes: levels of pixels and averages of patches do not tell the classes apart.
- Pathfinder: tracing solves it in more than 95 of 100 images. To linear classifiers of levels, of 5 x 5 patches, of
  8 x 8 pixels and of the distance between dots, both classes look alike. They are balanced, and no image is twice.
"""

import hashlib
from functools import cache

import numpy as np
import torch
from dataset_helpers import NOWHERE

from vitinit.benchmark.datasets import shapes
from vitinit.benchmark.datasets.registry import load
from vitinit.benchmark.datasets.shapes import SIZE
from vitinit.benchmark.image_files.arrays import Split
from vitinit.benchmark.spec import DatasetSpec


@cache
def whole() -> tuple[np.ndarray, np.ndarray]:
    return shapes.generate(6000)


def test_shapes_are_the_same_bits_everywhere() -> None:
    images, masks = whole()
    assert hashlib.sha256(images.tobytes() + masks.tobytes()).hexdigest()[:16] == "a049716e365f93cc"
    first = shapes.generate.__wrapped__(1200)
    assert np.array_equal(first[0], images[:1200])
    assert np.array_equal(first[1], masks[:1200])


def test_a_mask_is_loaded_at_its_size_and_at_others_the_nearest_pixels_class() -> None:
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


def test_all_of_pathfinder_is_drawn_without_the_global_generator() -> None:
    before = np.random.get_state()[1].copy()
    data = load(DatasetSpec(name="pathfinder-easy"), 32, NOWHERE)
    assert np.array_equal(before, np.random.get_state()[1])
    images = torch.cat([data.train.images, data.held_out.images])
    labels = torch.cat([data.train.labels, data.held_out.labels])
    whole = images[:, 0].numpy().tobytes() + labels.numpy().astype("<i8").tobytes()
    assert hashlib.sha256(whole).hexdigest()[:16] == "e43f093c571f1595"
