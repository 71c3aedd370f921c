"""Pathfinder: its bits.

These bits were also measured once: tracing solves them in more than 95 of 100 images, and to linear classifiers of
levels, of 5 x 5 patches and of 8 x 8 pixels, and of the distance between the dots, both classes look alike. They are
balanced, and no image is there twice. As long as the checksum below holds, that holds.
"""

import hashlib

import numpy as np
import torch
from dataset_helpers import NOWHERE

from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.spec import DatasetSpec


def test_all_of_it_is_drawn_without_the_global_generator() -> None:
    before = np.random.get_state()[1].copy()
    data = load(DatasetSpec(name="pathfinder-easy"), 32, NOWHERE)
    assert np.array_equal(before, np.random.get_state()[1])
    images = torch.cat([data.train.images, data.held_out.images])
    labels = torch.cat([data.train.labels, data.held_out.labels])
    whole = images[:, 0].numpy().tobytes() + labels.numpy().astype("<i8").tobytes()
    assert hashlib.sha256(whole).hexdigest()[:16] == "e43f093c571f1595"
