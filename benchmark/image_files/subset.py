"""Indices of the training images, and of those held out for validation."""

from collections.abc import Sequence

import numpy as np

from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError


def trained_on(spec: DatasetSpec, images: int, classes: int) -> int:
    """Number of images that a spec trains on, of so many of the training split.

    Raises:
        VitinitError: `train_size` or `val_size` is more than there are, or less than there are classes.
    """
    left = images
    for name in ("val_size", "train_size"):
        size = getattr(spec, name)
        if size is None:
            continue
        if size > left:
            raise VitinitError(f"dataset {spec.label}: {name} {size} is more than the {left} training images there are")
        if size < classes:
            raise VitinitError(f"dataset {spec.label}: {name} {size} is less than its number of classes, {classes}")
        left = left - size if name == "val_size" else size
    if not left:
        raise VitinitError(f"dataset {spec.label}: val_size {spec.val_size} leaves no image to train on")
    return left


def parts(labels: np.ndarray, spec: DatasetSpec, classes: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """The images to train on, and those of `val_size`: no image is in both.

    Args:
        labels: int, N, of the whole training split; or masks, N x S x S, in each of which are several classes: images
            are then drawn from all, whatever is in them.
        spec: how many of each.
        classes: how many classes there are.
        draw: which subset, where the spec redraws it (`train_draw: seed`).

    Returns:
        Ascending indices of both; the second is empty without `val_size`.

    Raises:
        VitinitError: as `trained_on`, or a class is left without training images.
    """
    if labels.ndim > 1:
        labels, classes = np.zeros(len(labels), np.int64), 1
    trained_on(spec, len(labels), classes)
    val = stratified(labels, spec.val_size or 0, classes)
    rest = np.setdiff1d(np.arange(len(labels)), val, assume_unique=True)
    if len(gone := np.setdiff1d(labels, labels[rest])):
        raise VitinitError(
            f"val_size {spec.val_size} takes all images with label {gone[0]}, and leaves none to train on"
        )
    if spec.train_size is not None:
        rest = rest[stratified(labels[rest], spec.train_size, classes, draw if spec.train_draw == "seed" else 0)]
    return rest, val


def stratified(labels: np.ndarray, size: int, classes: int, draw: int = 0) -> np.ndarray:
    """`size` images with the classes in proportion, at least one of each; a subset contains the smaller of its draw.

    Args:
        labels: int, N.
        size: how many of them.
        classes: how many classes there are.
        draw: 0 is the draw of subsets that are the same at every seed.

    Returns:
        Ascending indices of the chosen images.
    """
    # numpy promises that the numbers of RandomState never change, and of no other generator.
    random = np.random.RandomState(draw % 2**32)
    position = np.empty(len(labels))
    for label in range(classes):
        members = np.flatnonzero(labels == label)
        position[members] = random.permutation(len(members)) / len(members)
    return np.sort(np.argsort(position, kind="stable")[:size])


def a_fifth(labels: np.ndarray, classes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending indices of training and test images of data without splits: the same fifth of each class always.

    It is that of scikit-learn's `train_test_split` with random_state 0.

    Raises:
        VitinitError: a class has one image.
    """
    testing = np.zeros(len(labels), bool)
    for label, name in enumerate(classes):
        members = np.flatnonzero(labels == label)
        if len(members) == 1:
            raise VitinitError(f"class {name} has one image; training and test split need one each")
        count = max(1, round(len(members) / 5))
        testing[members[np.random.RandomState(0).permutation(len(members))[:count]]] = True
    return np.flatnonzero(~testing), np.flatnonzero(testing)
