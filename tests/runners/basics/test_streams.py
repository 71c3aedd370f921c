import random

import numpy as np
import torch

from vitinit.benchmark.augmentations.operations.timm_draws import seeded_python
from vitinit.runners.basics.streams import derive, stream


def test_a_position_is_drawn_without_drawing_what_came_before():
    later = torch.rand(5, generator=stream(3, "augment", 7, 12))
    for epoch in range(3):
        torch.rand(100, generator=stream(3, "augment", epoch, 0))
    assert torch.equal(torch.rand(5, generator=stream(3, "augment", 7, 12)), later)


def test_seeds_names_and_positions_give_different_streams():
    keys = [(s, n, *p) for s in (0, 1) for n in ("order", "augment") for p in ((), (0,), (1,), (0, 0), (0, 1), (1, 0))]
    seeds = {derive(*key) for key in keys}
    assert len(seeds) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_names_and_positions_do_not_run_into_each_other():
    assert derive(0, "order", 1, 12) != derive(0, "order", 11, 2)
    assert derive(1, "order") != derive(11, "order")


def test_global_generators_are_put_back():
    random.seed(5)
    np.random.seed(5)
    expected = random.random(), np.random.rand()
    random.seed(5)
    np.random.seed(5)
    with seeded_python(1):
        first = random.random(), np.random.rand()
    assert (random.random(), np.random.rand()) == expected
    with seeded_python(1):
        assert (random.random(), np.random.rand()) == first
