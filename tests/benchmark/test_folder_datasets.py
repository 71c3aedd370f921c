"""Folders of images: both layouts, and everything that can be wrong with a file."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
from dataset_helpers import NOWHERE, counts, error_of, folder_spec, make_folder, make_image, rows
from PIL import Image
from sklearn.model_selection import train_test_split
from torchvision.datasets import ImageFolder
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tv

from vitinit.benchmark.datasets.folder import FOLDER, both
from vitinit.benchmark.datasets.registry import a_fifth, load
from vitinit.benchmark.spec import DatasetSpec


def test_folder_with_train_and_test(tmp_path):
    make_folder(tmp_path, {"train/b": 3, "train/a": 4, "test/a": 1, "test/b": 2, "train/.cache": 1})
    for name in ("a/notes.txt", "a/._000.png", "list.csv"):
        (tmp_path / "train" / name).write_text("no image: notes, or left by another system")
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert (data.classes, data.train.labels.tolist(), data.held_out.labels.tolist()) == (
        ("a", "b"),
        [0] * 4 + [1] * 3,
        [0, 1, 1],
    )
    files = sorted(tmp_path.glob("train/a/0*.png")) + sorted(tmp_path.glob("train/b/*.png"))
    images = np.stack([Image.open(file) for file in files])
    assert np.array_equal(data.train.images.permute(0, 2, 3, 1), images)
    assert data.mean == pytest.approx(images.mean((0, 1, 2)) / 255)
    assert data.std == pytest.approx(images.std((0, 1, 2)) / 255)
    (tmp_path / "val").symlink_to((tmp_path / "test").rename(tmp_path / "elsewhere"))
    (tmp_path / "train/a").rename(tmp_path / "a")
    (tmp_path / "train/a").symlink_to(tmp_path / "a")
    files[-1].symlink_to(files[-1].rename(tmp_path / "image.png"))
    assert load(folder_spec(tmp_path), 8, NOWHERE).checksum == data.checksum


def test_folder_of_classes_gives_a_fifth_of_each_to_the_test_split(tmp_path):
    make_folder(tmp_path, {"a": 8, "b": 20, "c": 2})
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert torch.bincount(data.held_out.labels).tolist() == [2, 4, 1]
    assert counts(data) == [6, 16, 1]
    assert not rows(data.train.images) & rows(data.held_out.images)


def first_image(tmp_path, image, size=8, **saved):
    """An image as a folder dataset reads it, H x W x 3."""
    make_folder(tmp_path, {"train/b": 1, "test/a": 1, "test/b": 1})
    shutil.rmtree(tmp_path / "train/a", ignore_errors=True)
    (tmp_path / "train/a").mkdir()
    image.save(tmp_path / "train/a" / ("0.tif" if image.mode == "CMYK" else "0.png"), **saved)
    return load(folder_spec(tmp_path), size, NOWHERE).train.images[0].permute(1, 2, 0).numpy()


def test_folder_image_has_its_shorter_side_resized_and_its_centre_cropped(tmp_path):
    for size in ((40, 20), (33, 50)):
        # A smooth image: one pixel more or less in the rounding of the longer side hardly changes it.
        x, y = np.meshgrid(np.linspace(0, 250, size[0]), np.linspace(0, 250, size[1]))
        image = Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))
        expected = tv.center_crop(tv.resize(image, 16, InterpolationMode.BILINEAR), [16, 16])
        assert np.abs(first_image(tmp_path, image, 16).astype(int) - np.array(expected)).max() <= 10


def test_folder_images_of_any_8_bit_mode_become_rgb(tmp_path):
    for mode in ("L", "LA", "RGBA", "P", "1", "CMYK"):
        image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)).convert(mode)
        assert np.array_equal(first_image(tmp_path, image), np.array(image.convert("RGB"))), mode


def test_images_are_upright_and_what_is_transparent_lies_on_white(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    assert np.array_equal(first_image(tmp_path, Image.fromarray(pixels), exif=exif), np.rot90(pixels, -1))
    clear = Image.fromarray(pixels)
    clear.putalpha(Image.fromarray(np.repeat(np.array([[0], [255]], np.uint8), 32).reshape(8, 8)))
    assert np.array_equal(first_image(tmp_path, clear), np.concatenate([np.full_like(pixels[:4], 255), pixels[4:]]))
    grey = np.repeat(pixels[..., :1], 3, axis=2)
    level = int(grey[0, 0, 0])
    found = first_image(tmp_path, Image.fromarray(pixels[..., 0]), transparency=level)
    assert np.array_equal(found, np.where(grey == level, 255, grey))


def test_a_class_whose_letters_are_encoded_in_two_ways_is_one(tmp_path):
    one, other = "caf\u00e9", "cafe\u0301"
    make_folder(tmp_path, {f"train/{one}": 2, "train/b": 2, f"test/{other}": 1, "test/b": 1})
    assert load(folder_spec(tmp_path), 8, NOWHERE).classes == ("b", one)
    make_folder(tmp_path, {f"train/{other}": 1})
    assert "two folders of class" in error_of(folder_spec(tmp_path))
    make_folder(tmp_path / "splits", {"Train/a": 1, "Train/b": 1, "Test/a": 1, "Test/b": 1})
    assert "Test, Train would be its classes" in error_of(folder_spec(tmp_path / "splits"))


def test_a_file_that_cannot_be_used_is_one_line_that_names_it(tmp_path):
    make_folder(tmp_path, {"a": 2, "b": 2})
    page = Image.new("L", (8, 8))
    makes = [
        ("bad.png", lambda file: file.write_bytes((tmp_path / "a/000.png").read_bytes()[:100]), ""),
        ("tga.png", lambda file: Image.new("RGB", (8, 8)).save(file, format="TGA"), "it is no BMP, GIF, JPEG, PNG"),
        ("deep.png", lambda file: Image.fromarray(np.full((8, 8), 30_000, np.uint16)).save(file), "more than 8 bits"),
        ("colours.ppm", lambda file: file.write_bytes(b"P6 8 8 256\n" + bytes(384)), "more than 8 bits"),
        ("pages.tif", lambda file: page.save(file, save_all=True, append_images=[page]), "several frames or pages"),
        ("wide.png", lambda file: Image.new("1", (10_000, 9_000)).save(file), "10000 x 9000 pixels: too many"),
        ("link.png", lambda file: file.symlink_to("missing.png"), "FileNotFoundError"),
    ]
    for name, make, message in makes:
        make(file := tmp_path / "a" / name)
        assert f"cannot use the image {file}: {message}" in error_of(folder_spec(tmp_path))
        file.unlink()
    (tmp_path / "a/up").symlink_to(tmp_path)
    assert error_of(folder_spec(tmp_path)) == f"{tmp_path}/a/up: is a link that leads back to a folder above it"


GRID = """
title: Mine
rows: {A: {base: trunc_normal}}
blocks:
  - datasets: ['folder:images']
    model: {preset: vit_micro, image_size: 8, patch_size: 4}
    recipe: {name: small, epochs: 1, batch_size: 2}
    seeds: [0]
"""


@pytest.mark.parametrize("held_out", [{}, {"val_size": 6, "evaluate_on": "val"}])
@pytest.mark.parametrize("layout", [{"train/a": 3, "train/b": 3, "val/b": 1, "val/a": 1}, {"a": 5, "b": 10, "a/b": 2}])
def test_the_plan_counts_images_that_are_trained_and_measured_on_or_have_two_labels(
    layout, held_out, tmp_path, vitinit
):
    """Each file of a class is there twice; with splits, those of a class are in both."""
    make_folder(tmp_path / "images", layout)
    for file in sorted(tmp_path.glob("images/**/*.png")):
        shutil.copy(file, file.with_name(f"copy {file.name}"))
    if "val/a" in layout:
        shutil.copytree(tmp_path / "images/train/a", tmp_path / "images/val/a/more")
    a, b = (tmp_path / "images" / ("train" if "val/a" in layout else "") / name for name in "ab")
    shutil.copytree(a, b / "of the other class")
    dataset = {"name": "folder", "path": "images", **held_out}
    (tmp_path / "mine.yaml").write_text(GRID.replace("'folder:images'", json.dumps(dataset)))
    data = load(DatasetSpec(**dataset), 8, NOWHERE)
    trained, held_out = (
        [(image.numpy().tobytes(), int(label)) for image, label in zip(split.images, split.labels, strict=True)]
        for split in (data.train, data.held_out)
    )
    labels = Counter(content for content, _ in {*trained, *held_out})
    shared = [content for content, _ in held_out if content in dict(trained)]
    lines = [
        f"{len(shared)} of the {len(held_out)} held-out images are trained on, too",
        f"{[*labels.values()].count(2)} images under two labels",
    ]
    assert max(labels.values()) == 2
    assert shared
    assert data.duplicates() == lines
    assert "\n".join(["", *(f"folder:images: {line}" for line in lines), ""]) in vitinit("plan mine.yaml")[1]


def test_images_are_those_that_torchvision_reads(tmp_path):
    make_folder(tmp_path, {"a": 3, "a/deep/er": 2, "b": 5})
    make_image(tmp_path / "b/UPPER.JPG", 1)
    (tmp_path / "a/x.gif").touch()
    files = [str(file) for files, _ in both(tmp_path)[:2] for file in files]
    assert sorted(files) == sorted(path for path, _ in ImageFolder(tmp_path).samples)
    assert FOLDER.own_files(folder_spec(tmp_path))["unread"] == {".gif": 1}


def test_a_fifth_of_each_class_is_that_of_scikit_learn():
    labels = np.random.default_rng(0).integers(0, 4, 100)
    expected = [
        train_test_split(members, test_size=round(len(members) / 5), random_state=0)[1]
        for members in (np.flatnonzero(labels == label) for label in range(4))
    ]
    assert a_fifth(labels, "abcd")[1].tolist() == sorted(np.concatenate(expected))
