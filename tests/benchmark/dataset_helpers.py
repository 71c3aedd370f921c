"""Helpers that the tests of datasets share."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitinit.benchmark.datasets.registry import load
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

NOWHERE = Path("no-such-folder")


def folder_spec(path):
    return DatasetSpec(name="folder", path=str(path))


def error_of(spec, image_size=8, data_dir=NOWHERE):
    """The one line that `load` refuses this spec with."""
    with pytest.raises(VitinitError) as info:
        load(spec, image_size, data_dir)
    return str(info.value)


def counts(data):
    return torch.bincount(data.train.labels, minlength=len(data.classes)).tolist()


def rows(images):
    return {image.numpy().tobytes() for image in images}


def make_image(path, value, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(value).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)).save(path)


def make_folder(root, classes):
    for number, (name, images) in enumerate(classes.items()):
        for index in range(images):
            make_image(root / name / f"{index:03}.png", 1000 * number + index)
