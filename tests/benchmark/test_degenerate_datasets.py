"""Datasets on which accuracy would mean nothing are refused in one line."""

import numpy as np
import pytest

from vitinit.benchmark.datasets.dataset import InMemory
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError


class Odd(InMemory):
    def __init__(self, train: list[int], test: list[int], classes: int) -> None:
        super().__init__(name="odd")
        object.__setattr__(self, "given", (train, test, classes))

    def read(self, data_dir):
        train, test, classes = self.given
        splits = [(np.zeros((len(each), 3, 4, 4), np.uint8), np.array(each, np.int64)) for each in (train, test)]
        return *splits, tuple("abcdef"[:classes])


@pytest.mark.parametrize(
    ("train", "test", "classes", "says"),
    [
        ([0, 1], [], 2, "no test images"),
        ([0, 0], [0], 1, "at least 2"),
        ([0, 1], [0], 3, "3 class names, and training images of 2"),
    ],
)
def test_it_is_refused(tmp_path, train, test, classes, says):
    with pytest.raises(VitinitError, match=says):
        Odd(train, test, classes).load(DatasetSpec.model_construct(name="digits"), 4, tmp_path)
