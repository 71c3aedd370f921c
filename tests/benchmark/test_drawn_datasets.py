"""Datasets that are drawn: their bits, and masks of other sizes.

Their bits were also measured once. As long as they are those of the committed records, that holds:

- Shapes: levels of pixels and averages of patches do not tell the classes apart.
- Pathfinder: tracing solves it in more than 95 of 100 images. To linear classifiers of levels, of 5 x 5 patches, of
  8 x 8 pixels and of the distance between dots, both classes look alike. They are balanced, and no image is twice.
"""

import numpy as np
import pytest
import torch
from dataset_helpers import NOWHERE

from tests.records import REFERENCE
from vitinit.benchmark.datasets import shapes
from vitinit.benchmark.datasets.registry import load
from vitinit.benchmark.datasets.shapes import SIZE
from vitinit.benchmark.image_files.arrays import Split
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import DatasetSpec


def test_fewer_shapes_are_the_first_ones():
    for few, many in zip(shapes.generate.__wrapped__(1200), shapes.generate(6000), strict=True):
        assert np.array_equal(few, many[:1200])


def test_a_mask_is_loaded_at_its_size_and_at_others_the_nearest_pixels_class():
    data = load(DatasetSpec(name="shapes", train_size=20, val_size=10, evaluate_on="val"), SIZE, NOWHERE)
    assert data.train.labels.shape == (20, SIZE, SIZE)
    assert data.held_out.labels.shape == (10, SIZE, SIZE)
    assert data.train.labels.dtype == torch.uint8
    images, masks = (torch.from_numpy(tensors[:4]) for tensors in shapes.generate(6000))
    for side in (16, 48, 64):
        source = Split(images, masks)
        places = ((torch.arange(side) + 0.5) * SIZE / side).long()
        assert torch.equal(source.masks(side), masks[:, places][:, :, places])
        assert source.sized(side).shape == (4, 3, side, side)


@pytest.mark.parametrize("study", ["small", "segmentation-small", "long-range-small"])
def test_images_are_those_of_committed_records_whatever_the_global_generator(study):
    done = Store(REFERENCE).read(study).done.values()
    record = next(run for run in done if run.spec.dataset.name != "cifar10" and not run.spec.dataset.train_size)
    before = np.random.get_state()[1].copy()
    data = load(record.spec.dataset, record.spec.model.image_size, NOWHERE)
    assert data.checksum == record.dataset.checksum
    assert np.array_equal(before, np.random.get_state()[1])
