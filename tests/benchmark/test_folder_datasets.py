"""Folders of images: both layouts, and everything that can be wrong with a file."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_helpers import NOWHERE, counts, error_of, folder_spec, make_folder, make_image, rows
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tv

from vitinit.benchmark.datasets.folder import FOLDER
from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.datasets.registry import unavailable


def test_folder_with_train_and_test(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/b": 3, "train/a": 4, "test/a": 1, "test/b": 2})
    (tmp_path / "train/a/notes.txt").write_text("not an image")
    (tmp_path / "train/a/._000.png").write_text("left by another system")
    (tmp_path / "train/.cache").mkdir()
    (tmp_path / "train/list.csv").write_text("")
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert data.classes == ("a", "b")
    assert data.train.labels.tolist() == [0] * 4 + [1] * 3
    assert data.held_out.labels.tolist() == [0, 1, 1]
    files = sorted(tmp_path.glob("train/a/0*.png")) + sorted(tmp_path.glob("train/b/*.png"))
    for image, file in zip(data.train.images, files, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.array(Image.open(file)))
    pixels = data.train.images.numpy() / 255
    assert data.mean == pytest.approx(pixels.mean((0, 2, 3)))
    assert data.std == pytest.approx(pixels.std((0, 2, 3)))
    assert unavailable(folder_spec(tmp_path), NOWHERE) is None
    (tmp_path / "test").rename(tmp_path / "val")
    assert load(folder_spec(tmp_path), 8, NOWHERE).checksum == data.checksum
    assert FOLDER.images_in_memory(folder_spec(tmp_path), NOWHERE) == 4 + 3 + 3


def test_folder_of_classes_gives_a_fifth_of_each_to_the_test_split(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 8, "b": 20, "c": 2})
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert torch.bincount(data.held_out.labels).tolist() == [2, 4, 1]
    assert counts(data) == [6, 16, 1]
    assert not rows(data.train.images) & rows(data.held_out.images)
    assert load(folder_spec(tmp_path), 8, NOWHERE).checksum == data.checksum
    assert counts(load(folder_spec(tmp_path, 6), 8, NOWHERE)) == [2, 3, 1]


def test_folder_image_has_its_shorter_side_resized_and_its_centre_cropped(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/b": 1, "test/a": 1, "test/b": 1})
    (tmp_path / "train/a").mkdir()
    for size in ((40, 20), (20, 40), (33, 50), (10, 8)):
        # A smooth image: one pixel more or less in the rounding of the longer side hardly changes it.
        x, y = np.meshgrid(np.linspace(0, 250, size[0]), np.linspace(0, 250, size[1]))
        image = Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))
        image.save(tmp_path / "train/a/0.png")
        expected = tv.center_crop(tv.resize(image, 16, InterpolationMode.BILINEAR), [16, 16])
        found = load(folder_spec(tmp_path), 16, NOWHERE).train.images[0].permute(1, 2, 0).numpy()
        assert np.abs(found.astype(int) - np.array(expected)).max() <= 10


def test_folder_images_of_any_8_bit_mode_become_rgb(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/a": 1, "train/b": 1, "test/a": 1, "test/b": 1})
    original = Image.open(tmp_path / "train/a/000.png").copy()
    (tmp_path / "train/a/000.png").unlink()
    for mode in ("L", "LA", "RGBA", "P", "1", "CMYK"):
        image, file = original.convert(mode), tmp_path / "train/a" / ("0.tif" if mode == "CMYK" else "0.png")
        image.save(file)
        found = load(folder_spec(tmp_path), 8, NOWHERE).train.images[0]
        assert np.array_equal(found.permute(1, 2, 0).numpy(), np.array(image.convert("RGB"))), mode
        file.unlink()


def test_folder_of_one_colour_has_a_std_to_divide_by(tmp_path: Path) -> None:
    for file in ("a/0.png", "a/1.png", "b/0.png", "b/1.png"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / file)
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert (data.mean, data.std) == ((1.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A folder to which a test adds one bad file."""
    make_folder(tmp_path / "images", {"a": 2, "b": 2})
    return tmp_path / "images"


def chunk(kind: bytes, body: bytes) -> bytes:
    """A part of a PNG file."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def bomb(side: int) -> bytes:
    """PIL only warns of 10,000 pixels a side; it is refused from the header, before anything is unpacked."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def cut_short(file: Path) -> None:
    make_image(file, 1)
    file.write_bytes(file.read_bytes()[:100])


BAD_FILES: list[tuple[str, Callable[[Path], object], str]] = [
    ("bad.png", cut_short, "cannot use the image {file}"),
    (
        "bad.png",
        lambda file: Image.new("RGB", (8, 8)).save(file, format="TGA"),
        "cannot use the image {file}: it is no BMP, GIF, JPEG, PNG, PPM, TIFF or WEBP",
    ),
    ("deep.png", lambda file: Image.fromarray(np.full((8, 8), 30_000, dtype=np.uint16)).save(file), "more than 8 bits"),
    ("float.tif", lambda file: Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(file), "more than 8 bits"),
    ("bomb.png", lambda file: file.write_bytes(bomb(10_000)), "exceeds limit"),
    ("link.png", lambda file: file.symlink_to("../../outside/000.png"), "{file} is not a file inside {root}"),
    ("link.png", lambda file: file.symlink_to("missing.png"), "{file} is not a file"),
]


def test_a_file_that_cannot_be_used_is_one_line_that_names_it(good: Path) -> None:
    make_folder(good.parent, {"outside": 2})
    for name, make, message in BAD_FILES:
        file = good / "a" / name
        make(file)
        said = error_of(folder_spec(good))
        assert message.format(file=file, root=good) in said
        file.unlink()
    (good / "c").symlink_to(good.parent / "outside")
    assert f"{good / 'c/000.png'} is not a file inside {good}" in error_of(folder_spec(good))


def test_a_gif_with_the_name_of_a_jpeg_is_read_as_pets_has_some(good: Path) -> None:
    before = len(load(folder_spec(good), 8, NOWHERE).train.labels)
    Image.new("RGB", (8, 8), (0, 255, 0)).save(good / "a/a_gif.jpg", format="GIF")
    Image.new("RGB", (8, 8), (0, 255, 0)).save(good / "a/b_gif.jpg", format="GIF")
    assert len(load(folder_spec(good), 8, NOWHERE).train.labels) > before


def test_folder_with_a_very_long_image_needs_no_more_memory_than_it_has_pixels(good: Path) -> None:
    """With the shorter side resized first, this image would be 256 x 12,800,000."""
    make_image(good / "a/long.png", 1, (50_000, 1))
    assert load(folder_spec(good), 256, NOWHERE).train.images.shape[-2:] == (256, 256)


def test_folder_with_a_png_whose_text_unpacks_to_gigabytes(good: Path) -> None:
    text = chunk(b"zTXt", b"key\x00\x00" + zlib.compress(bytes(2**26 + 1), 9))
    content = (good / "a/000.png").read_bytes()
    (good / "a/bomb.png").write_bytes(content[:33] + text + content[33:])  # after the header
    tracemalloc.start()
    try:
        message = error_of(folder_spec(good))
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert f"cannot use the image {good / 'a/bomb.png'}" in message


def test_folder_may_link_within_itself_and_be_a_link_itself_but_its_splits_not_lie_elsewhere(good: Path) -> None:
    (good / "a/again.png").symlink_to("000.png")
    (good.parent / "alias").symlink_to(good)
    data = load(folder_spec(good.parent / "alias"), 8, NOWHERE)
    assert len(data.train.labels) + len(data.held_out.labels) == 5
    root = good.parent / "root"
    root.mkdir()
    for split in ("train", "test"):
        (root / split).symlink_to(good)
    assert f"is not a file inside {root}" in error_of(folder_spec(root))
