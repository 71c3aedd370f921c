"""Pets' masks, from archives with the layout of the official ones: against torchvision, which reads them unpacked."""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.datasets as theirs
from PIL import Image
from small_archives import Files, packed_up, pets, put

from vitinit.benchmark.datasets.archives.pets_masks import ANNOTATIONS, IMAGES, PETS_MASKS, SIDE, PetsMasks
from vitinit.benchmark.image_files.arrays import IGNORED
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

NAMES = [f"{breed}_{number}" for breed in ("Abyssinian", "yorkshire_terrier") for number in (1, 2, 33)]


def png(levels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(levels.astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def trimap(number: int, size: tuple[int, int] = (40, 30)) -> np.ndarray:
    return np.random.RandomState(number).randint(1, 4, size[::-1])


def here(folder: Path, **changed: bytes) -> PetsMasks:
    """The archives of the small `pets` with trimaps; the dataset with their md5."""
    archives: dict[str, Files] = pets()
    for number, name in enumerate(NAMES):
        archives[ANNOTATIONS][f"annotations/trimaps/{name}.png"] = changed.get(name, png(trimap(number)))
    contents = {file: packed_up(file, files) for file, files in archives.items()}
    put(folder, contents)
    files = {file: hashlib.md5(content).hexdigest() for file, content in contents.items()}
    return replace(PETS_MASKS, files=files, images=(4, 2))


def test_images_and_masks_are_those_of_torchvision(tmp_path: Path) -> None:
    dataset = here(tmp_path)
    spec = DatasetSpec(name="pets-masks")
    assert dataset.unavailable(spec, tmp_path) is None
    data = dataset.load(spec, 32, tmp_path)
    for file in (IMAGES, ANNOTATIONS):
        with tarfile.open(tmp_path / file) as archive:
            archive.extractall(tmp_path / "oxford-iiit-pet")  # ours; early 3.10 and 3.11 know no filter
    for split, name in ((data.train, "trainval"), (data.held_out, "test")):
        pairs = theirs.OxfordIIITPet(tmp_path, name, target_types="segmentation")
        assert len(pairs) == len(split.labels)
        for number, (image, mask) in enumerate(pairs):
            small = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
            pixels = torch.nn.functional.interpolate(
                torch.from_numpy(small.copy())[None], (32, 32), mode="bilinear", antialias=True
            )[0]
            assert torch.equal(split.images[number], pixels)
            places = ((np.arange(SIDE) + 0.5) * np.array(mask.size)[:, None] / SIDE).astype(int)
            at_32 = ((np.arange(32) + 0.5) * SIDE / 32).astype(int)
            levels = np.asarray(mask)[places[1][at_32]][:, places[0][at_32]]
            expected = np.select([levels == 1, levels == 2], [1, 0], IGNORED)
            assert np.array_equal(split.labels[number].numpy(), expected)
    assert data.classes == ("background", "pet")


def test_what_is_wrong_is_one_line_that_names_it(tmp_path: Path) -> None:
    spec = DatasetSpec(name="pets-masks")
    for content, words in (
        (png(trimap(0) * 0 + 7), "Abyssinian_33.png cannot be used: a mask has the levels 1, 2 and 3"),
        (png(trimap(0, (41, 30))), "Abyssinian_33.jpg cannot be used: 40 x 30 pixels, its mask has 41 x 30"),
        (b"no image", "Abyssinian_33.png cannot be used"),
    ):
        with pytest.raises(VitinitError, match=words):
            here(tmp_path, Abyssinian_33=content).load(spec, 32, tmp_path)
    contents = {file: packed_up(file, files) for file, files in pets().items()}
    put(tmp_path, contents)
    files = {file: hashlib.md5(content).hexdigest() for file, content in contents.items()}
    with pytest.raises(VitinitError, match="annotations.tar.gz: nothing of Abyssinian_1, which the lists name"):
        replace(PETS_MASKS, files=files, images=(4, 2)).load(spec, 32, tmp_path)
