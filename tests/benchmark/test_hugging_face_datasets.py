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


def made(labels, seed=0, names=("a", "b"), **columns):
    kinds = {"image": datasets.Image(), **dict.fromkeys(("label", *columns), datasets.ClassLabel(names=[*names]))}
    content = {"image": images(len(labels), seed), "label": labels, **columns}
    return datasets.Dataset.from_dict(content, features=datasets.Features(kinds))


def loaded(content, path):
    saved = datasets.DatasetDict(content) if isinstance(content, dict) else content
    saved.save_to_disk(str(path))
    spec = resolve_dataset({"name": f"hf:{path}"})
    assert unavailable(spec, NOWHERE) is None
    return load(spec, 8, NOWHERE)


def test_pixels_labels_and_classes_are_those_that_were_saved(tmp_path):
    splits = {"train": made([0, 1, 1, 0], 0), "validation": made([1, 0], 1), "test": made([1, 1, 0], 2)}
    found = loaded(splits, tmp_path / "set")
    assert found.classes == ("a", "b")
    for split, seed, labels in ((found.train, 0, [0, 1, 1, 0]), (found.held_out, 2, [1, 1, 0])):
        assert np.array_equal(split.images.permute(0, 2, 3, 1), np.stack(images(len(labels), seed)))
        assert split.labels.tolist() == labels


@pytest.mark.parametrize("hidden", [-1, None])
def test_labels_that_are_not_public_are_no_test_split_and_none_to_train_on(tmp_path, hidden):
    splits = {"train": made([0, 1]), "test": made([hidden, 1]), "validation": made([1, 0, 1], 1)}
    assert loaded(splits, tmp_path / "set").held_out.labels.tolist() == [1, 0, 1]
    with pytest.raises(VitinitError, match="hf:.*: 1 of its training images have no label$"):
        loaded(made([hidden, 1, 0]), tmp_path / "other")


def test_what_is_no_dataset_of_images_with_a_class_each_is_refused(tmp_path):
    for number, (content, says) in enumerate(
        [
            (datasets.Dataset.from_dict({"text": ["a", "b"]}), "one column is to hold images; there are none"),
            ({"dev": made([0, 1])}, "has no split 'train', but dev"),
            ({"train": made([0, 1]), "test": made([0], names="ba"), "dev": made([1])},
             r"classes differ, \['a', 'b'\] in train and \['b', 'a'\] in test: save it with one list"),
            ({"train": made([0, 1]), "test": made([-1]), "dev": made([1])},
             "none of test, validation, valid, val has labels, and dev is none of these: save it"),
            (made([0, 1]).rename_column("label", "x").add_column("y", [0, 1]).cast_column("y", datasets.ClassLabel(2)),
             "one column is to hold classes; there are x, y"),
        ]
    ):  # fmt: skip
        with pytest.raises(VitinitError, match=says):
            loaded(content, tmp_path / str(number))
    with pytest.raises(VitinitError, match="dataset hf:.*none"):
        load(resolve_dataset({"name": f"hf:{tmp_path}/none"}), 8, NOWHERE)
