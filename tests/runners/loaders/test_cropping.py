"""Recipes that crop images in their own size: a folder's files, and what has no images of its own size."""

from __future__ import annotations

import hashlib
import shutil

import pytest
import torch
import yaml
from PIL import Image

from benchmark.datasets import registry
from benchmark.datasets.dataset import Dataset
from benchmark.datasets.load import load
from benchmark.grids import grid
from benchmark.spec import DatasetSpec, Recipe
from initializers.errors import VitinitError
from runners.loaders import make_loader

CPU = torch.device("cpu")


def test_a_folder_is_what_its_files_are_and_its_statistics_are_those_of_the_decoded_folder(photographs, tmp_path):
    spec = DatasetSpec(name="folder", path=str(photographs), train_size=100)
    plain, data = (load(spec, 48, tmp_path, cropped=cropped) for cropped in (False, True))
    assert (data.mean, data.std, data.classes) == (plain.mean, plain.std, plain.classes)
    assert data.train.labels.tolist() == plain.train.labels.tolist()
    listed = sorted((photographs / "test").glob("*/*"))
    digest = hashlib.sha256()
    for files, split in ((data.train.files, data.train), (listed, data.held_out)):
        digest.update(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files))
        digest.update(split.labels.numpy().tobytes())
    assert data.checksum == digest.hexdigest()
    for number, path in enumerate(listed):
        with Image.open(path) as image:
            assert data.held_out.image(number).tobytes() == image.convert("RGB").tobytes()


def test_a_file_that_changes_while_a_run_uses_it_ends_the_run_by_name(photographs, tmp_path):
    copy = shutil.copytree(photographs, tmp_path / "copy")
    data = load(DatasetSpec(name="folder", path=str(copy)), 48, tmp_path, cropped=True)
    changed = sorted((copy / "test").glob("*/*"))[3]
    Image.new("RGB", (64, 64)).save(changed)
    with pytest.raises(VitinitError, match=f"{changed} has changed since the run began"):
        list(make_loader(data, Recipe(name="test", epochs=1, batch_size=100, lr=1e-3, crop_pct=0.9), 0, CPU).held_out())


def test_a_file_that_cannot_be_decoded_stops_a_run_before_it_begins(photographs, tmp_path):
    for split in ("train", "test"):
        copy = shutil.copytree(photographs, tmp_path / split)
        bad = sorted((copy / split).glob("*/*"))[3]
        bad.write_bytes(bad.read_bytes()[:-200])
        with pytest.raises(VitinitError, match=f"cannot use the image {bad}: "):
            load(DatasetSpec(name="folder", path=str(copy)), 48, tmp_path, cropped=True)


class Final(Dataset):
    """One that somebody else has decoded."""

    def opened(self, spec, image_size, data_dir):
        raise AssertionError("it is refused before it is opened")


@pytest.mark.parametrize(
    ("dataset", "fields", "says"),
    [
        ("imagenet", {"crop_padding": 2}, "recipe 'small': imagenet has no crop_padding, it has crop_scale"),
        ("digits", {"crop_pct": 0.9, "crop_padding": 2}, "crop_padding does not go with crop_scale or crop_pct"),
        ("final", {"crop_scale": [0.1, 1.0]}, "need images in their own size, those of final are there"),
    ],
)
def test_a_crop_that_the_data_does_not_have_is_refused_with_its_row(tmp_path, monkeypatch, dataset, fields, says):
    find = registry.get
    monkeypatch.setattr(registry, "get", lambda name: Final(name="final") if name == "final" else find(name))
    block = {
        "datasets": [dataset],
        "model": {"preset": "vit_micro", "image_size": 16, "patch_size": 4},
        "recipe": {"name": "small", **fields},
        "seeds": [0],
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"title": "mine", "rows": {"Mine": {"base": "trunc_normal"}}, "blocks": [block]}))
    with pytest.raises(VitinitError, match=says) as info:
        grid.load(str(path))
    assert "row 'Mine'" in str(info.value)
