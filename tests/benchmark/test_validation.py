"""The protocol that chooses nothing on the test split: its parts of the training split, and what identifies them."""

from collections import Counter

import numpy as np
import pytest
from dataset_helpers import NOWHERE, rows

from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.image_files.subset import parts
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

LABELS = np.repeat(np.arange(4), (40, 30, 20, 10))[np.random.default_rng(0).permutation(100)]


def digits(**fields: object) -> DatasetSpec:
    return DatasetSpec.model_validate({"name": "digits", **fields})


def test_validation_images_are_never_trained_on_and_depend_on_their_number_alone() -> None:
    vals = set()
    for train_size, draw in ((None, "fixed"), (30, "fixed"), (9, "seed"), (80, "seed")):
        spec = digits(train_size=train_size, val_size=20, train_draw=draw)
        for number in (0, 1, 2**62):
            train, val = parts(LABELS, spec, 4, number)
            assert not set(train) & set(val)
            assert (len(train), train.tolist()) == (train_size or 80, sorted(train))
            vals.add(tuple(val))
    (val,) = vals
    assert Counter(LABELS[list(val)]) == {0: 8, 1: 6, 2: 4, 3: 2}


def test_a_subset_is_stratified_and_contains_the_smaller_ones_and_a_redrawn_one_is_another_at_each_draw() -> None:
    def subset(size: int, draw: int, how: str = "seed") -> set[int]:
        return set(parts(LABELS, digits(train_size=size, train_draw=how), 4, draw)[0].tolist())

    subsets = [subset(40, draw) for draw in range(20)]
    assert len(set(map(frozenset, subsets))) == 20
    assert all(Counter(LABELS[list(each)]) == {0: 16, 1: 12, 2: 8, 3: 4} for each in subsets)
    assert len(set.union(*subsets)) == 100, "every image is drawn now and then"
    assert subset(40, 3, "fixed") == subset(40, 0, "fixed") == subset(40, 0)
    assert subset(4, 3) < subset(10, 3) < subset(40, 3) < subset(100, 3)
    assert Counter(LABELS[list(subset(4, 3))]) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_what_is_held_out_is_the_test_split_or_the_validation_part() -> None:
    """scikit-learn's digits hold no image twice, so pixels tell images apart."""
    whole, on_val, on_test = (
        load(digits(**fields), 8, NOWHERE)
        for fields in ({}, {"val_size": 200, "evaluate_on": "val"}, {"val_size": 200})
    )
    training, test, val = (rows(each.images) for each in (whole.train, whole.held_out, on_val.held_out))
    assert rows(on_test.held_out.images) == test
    assert rows(on_val.train.images) == rows(on_test.train.images) == training - val
    assert (len(on_val.held_out.labels), len(on_val.train.labels), val <= training) == (200, 1437 - 200, True)
    assert not val & test
    assert len({whole.checksum, on_val.checksum, on_test.checksum}) == 3
    assert on_val.mean == whole.mean


def test_validation_that_would_take_a_class_away_is_refused() -> None:
    labels = np.array([0] * 10 + [3])
    for train_size in (None, 5):
        spec = digits(train_size=train_size, val_size=4)
        with pytest.raises(
            VitinitError, match="^val_size 4 takes all images with label 3, and leaves none to train on"
        ):
            parts(labels, spec, 4, 0)
        train, _ = parts(np.append(labels, 3), spec, 4, 0)
        assert set(np.append(labels, 3)[train]) == {0, 3}, "a class that was never there is not missed"
