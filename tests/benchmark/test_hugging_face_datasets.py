"""Datasets of the library `datasets`, made here and saved: pixels, splits, refusals, and one run."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitinit.benchmark.datasets.registry import load, unavailable
from vitinit.benchmark.grids.grid import resolve_dataset
from vitinit.initializers.errors import VitinitError

datasets = pytest.importorskip("datasets", reason="no datasets: pip install 'vitinit[hf]'")

NOWHERE = Path("/nonexistent")


def images(count, seed):
    return [*map(Image.fromarray, np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), np.uint8))]


def made(labels, seed=0, **columns):
    kinds = {"image": datasets.Image(), **dict.fromkeys(("label", *columns), datasets.ClassLabel(names=["a", "b"]))}
    content = {"image": images(len(labels), seed), "label": labels, **columns}
    return datasets.Dataset.from_dict(content, features=datasets.Features(kinds))


def saved(found, path):
    found.save_to_disk(str(path))
    return {"name": f"hf:{path}"}


def loaded(named):
    spec = resolve_dataset(named)
    assert unavailable(spec, NOWHERE) is None
    return load(spec, 8, NOWHERE)


def test_pixels_labels_and_classes_are_those_that_were_saved(tmp_path):
    splits = {"train": made([0, 1, 1, 0], 0), "validation": made([1, 0], 1), "test": made([1, 1, 0], 2)}
    found = loaded(saved(datasets.DatasetDict(splits), tmp_path / "set"))
    assert found.classes == ("a", "b")
    for split, seed, labels in ((found.train, 0, [0, 1, 1, 0]), (found.held_out, 2, [1, 1, 0])):
        assert np.array_equal(split.images.permute(0, 2, 3, 1), np.stack(images(len(labels), seed)))
        assert split.labels.tolist() == labels


@pytest.mark.parametrize("hidden", [-1, None])
def test_labels_that_are_not_public_are_no_test_split_and_none_to_train_on(tmp_path, hidden):
    splits = {"train": made([0, 1]), "test": made([hidden, 1]), "validation": made([1, 0, 1], 1)}
    assert loaded(saved(datasets.DatasetDict(splits), tmp_path / "set")).held_out.labels.tolist() == [1, 0, 1]
    with pytest.raises(VitinitError, match="hf:.*: 1 of its training images have no label$"):
        loaded(saved(made([hidden, 1, 0]), tmp_path / "other"))


def test_what_is_no_dataset_of_images_with_a_class_each_is_refused(tmp_path):
    for number, (content, says) in enumerate(
        [
            (datasets.Dataset.from_dict({"text": ["a", "b"]}), "one column is to hold images; there are none"),
            (datasets.DatasetDict({"dev": made([0, 1])}), "has no split 'train', but dev"),
            (made([0, 1]).rename_column("label", "x").add_column("y", [0, 1]).cast_column("y", datasets.ClassLabel(2)),
             "one column is to hold classes; there are x, y"),
        ]
    ):  # fmt: skip
        with pytest.raises(VitinitError, match=says):
            loaded(saved(content, tmp_path / str(number)))
    with pytest.raises(VitinitError, match="dataset hf:.*none"):
        loaded({"name": f"hf:{tmp_path}/none"})
