"""The subset of a training split that a spec's `train_size` asks for."""

from __future__ import annotations

import numpy as np

from initializers.errors import VitinitError


def stratified(labels: np.ndarray, size: int, classes: int) -> np.ndarray:
    """`size` images with the classes in proportion, at least one of each; every subset contains the smaller ones.

    Args:
        labels: int, N.
        size: how many of them.
        classes: how many classes there are.

    Returns:
        Ascending indices of the chosen images.

    Raises:
        VitinitError: there are fewer images than that, or more classes.
    """
    if size > len(labels):
        raise VitinitError(f"train_size {size} is more than the {len(labels)} images of the training split")
    if size < classes:
        raise VitinitError(f"train_size {size} is less than the number of classes, {classes}")
    # numpy promises that the numbers of RandomState never change, and of no other generator.
    random = np.random.RandomState(0)
    position = np.empty(len(labels))
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        position[members] = random.permutation(len(members)) / len(members)
    return np.sort(np.argsort(position, kind="stable")[:size])
