"""Contract of every dataset of the registry. A new one is tested with no edit here."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_helpers import error_of, make_folder

from vitinit.benchmark.datasets import registry
from vitinit.benchmark.image_files.arrays import IGNORED
from vitinit.benchmark.spec import WITH_PATH, DatasetSpec

NAMES = registry.names()
SIZE = 8
"""Side of the images in pixels: small, as decoding takes the longest."""


def spec_of(dataset, path):
    return DatasetSpec(name=dataset.name, path=str(path) if dataset.name in WITH_PATH else None)


DRAWN = pytest.param("pathfinder-easy", marks=pytest.mark.long)  # drawing it takes eight seconds
READ = [name for name in NAMES if not registry.get(name).streamed and name not in ("hf", "pathfinder-easy")]


@pytest.fixture(scope="module", params=[*READ, DRAWN])
def here(request, tmp_path_factory):
    """A dataset that is here: its spec, the data folder, and the whole of it."""
    path = tmp_path_factory.mktemp("images")
    if request.param == "folder":
        make_folder(path, {"a": 20, "b": 10})
    place, spec = Path(os.environ.get("VITINIT_DATA", path / "data")), spec_of(registry.get(request.param), path)
    if registry.unavailable(spec, place):
        pytest.skip(f"no {spec.name}: TESTS_KEEP=VITINIT_DATA make test")
    return spec, place, registry.get(spec.name).opened(spec, place)


@pytest.mark.long
def test_what_it_declares_is_what_is_loaded(here):
    spec, place, opened = here
    dataset, classes = registry.get(spec.name), len(opened.classes)
    for split in (opened.train, opened.test):
        shape, kind = ((SIZE, SIZE), torch.uint8) if dataset.dense else ((), torch.int64)
        assert (split.labels.dtype, split.masks(SIZE).shape[1:]) == (kind, shape)
        assert set(split.labels.flatten().tolist()) - {IGNORED} == set(range(classes))
        images = split.part(torch.arange(0, len(split.labels), 7)[:20]).sized(SIZE)
        assert (images.dtype, images.shape[1:], images.is_contiguous()) == (torch.uint8, (3, SIZE, SIZE), True)
        assert images.max() > images.min()
    numbers = (len(opened.train.labels), len(opened.test.labels))
    assert dataset.images in (None, numbers)
    assert dataset.classes in (None, classes)
    assert registry.decoded_size(spec, SIZE, place) == sum(numbers) * (3 + dataset.dense) * SIZE**2
    assert len(set(opened.classes)) == classes


def test_its_parts_are_disjoint_and_stratified_and_those_of_its_files(here):
    spec, place, opened = here
    dataset, classes = registry.get(spec.name), len(opened.classes)
    size = 4 * classes
    spec = spec.model_copy(update={"val_size": size, "train_size": size, "train_draw": "seed", "evaluate_on": "val"})
    data = registry.load(spec, SIZE, place, draw=1)
    (chosen, val), (others, same) = (
        registry.train_and_val(opened.train.labels.numpy(), spec, classes, draw) for draw in (1, 2)
    )
    assert not set(chosen) & set(val)
    assert np.array_equal(val, same)
    assert not np.array_equal(chosen, others)
    share = np.bincount(opened.train.labels.flatten().numpy()) / opened.train.labels.numel()
    for split, part in ((data.train, chosen), (data.held_out, val)):
        assert torch.equal(split.images, opened.train.part(torch.from_numpy(part)).sized(SIZE))
        assert torch.equal(split.labels, opened.train.masks(SIZE)[part])
        assert len(split.labels) == size
        if not dataset.dense:  # the images of masks are drawn from all
            assert np.abs(np.bincount(split.labels.numpy(), minlength=classes) - share * size).max() <= 1.5
    assert (data.classes, len(data.mean), len(data.std)) == (opened.classes, 3, 3)
    assert opened.statistics in (None, (data.mean, data.std))
    decoded = 2 * size if dataset.images else len(opened.train.labels) + len(opened.test.labels)
    assert registry.decoded_size(spec, SIZE, place) == decoded * (3 + dataset.dense) * SIZE**2
    assert dataset.training_images(spec) == size


def test_what_is_missing_or_damaged_is_one_line_that_names_it_and_where_it_comes_from(tmp_path):
    for dataset in map(registry.get, NAMES):
        spec, place = spec_of(dataset, tmp_path / "missing"), tmp_path / dataset.name
        assert dataset.downloaded or dataset.origin != registry.Dataset.origin
        if dataset.name in WITH_PATH:
            assert str(tmp_path / "missing") in error_of(spec)
            continue
        reason = registry.unavailable(spec, place)
        if reason is None:
            assert not dataset.downloaded
            continue
        assert reason == error_of(spec, SIZE, place), "a run says what the plan says"
        assert str(place) in reason
        if not dataset.downloaded:
            continue
        assert f"vitinit data get {dataset.name}" in reason
        assert all(Path(file).name in reason for file in dataset.files)
        for file in dataset.files:
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(b"damaged")
        assert f"cannot read {dataset.name} in {place} (" in error_of(spec, SIZE, place)
