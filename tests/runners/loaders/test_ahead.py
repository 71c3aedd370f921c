"""Jobs carried out beside one another: order, errors, threads, and the bits of augmented batches."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
import torch

from tests.random_images import random_data
from vitinit.benchmark.spec import Recipe
from vitinit.runners.loaders import make_loader
from vitinit.runners.loaders.ahead import carried_out


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert working() == []
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


def working() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("batch")]


def slow_at_first(number: int) -> int:
    time.sleep(0.02 if number % 3 == 0 else 0)
    return number


def test_abandoned_it_leaves_no_thread():
    results = carried_out((partial(slow_at_first, number) for number in range(1000)), 3)
    assert next(results) == 0
    assert len(working()) == 3
    results.close()
    assert working() == []


def test_augmented_batches_are_the_same_on_any_number_of_threads():
    augmentation = {"hflip": 0.5, "rand_augment": "rand-m9-mstd0.5-inc1", "mixup": 0.8, "random_erasing": 0.25}
    recipe = Recipe(name="test", epochs=1, batch_size=48, lr=1e-3, **augmentation)
    loader = make_loader(random_data(480, 16), recipe, 0, torch.device("cpu"))
    torch.set_num_threads(1)
    alone = list(loader.train(0))
    torch.set_num_threads(3)
    together = list(loader.train(0))
    assert len(alone) == len(together) == 10
    for ours, theirs in zip(alone, together, strict=True):
        assert all(map(torch.equal, ours, theirs))
