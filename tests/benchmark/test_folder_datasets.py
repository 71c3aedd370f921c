"""Folders of images: both layouts, and everything that can be wrong with a file."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from dataset_helpers import NOWHERE, counts, error_of, folder_spec, make_folder, make_image, rows
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tv

from benchmark.datasets.load import load
from benchmark.datasets.registry import unavailable
from initializers.errors import VitinitError


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


def test_folder_with_val_in_place_of_test(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 2, "val/a": 1, "val/b": 1})
    assert len(load(folder_spec(tmp_path), 8, NOWHERE).held_out.labels) == 2


def test_folder_of_classes_gives_a_fifth_of_each_to_the_test_split(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 10, "b": 20, "c": 2})
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert torch.bincount(data.held_out.labels).tolist() == [2, 4, 1]
    assert counts(data) == [8, 16, 1]
    assert not rows(data.train.images) & rows(data.held_out.images)
    assert load(folder_spec(tmp_path), 8, NOWHERE).checksum == data.checksum
    assert counts(load(folder_spec(tmp_path, 6), 8, NOWHERE)) == [2, 3, 1]


@pytest.mark.parametrize("size", [(40, 20), (20, 40), (33, 50), (10, 8)])
def test_folder_image_has_its_shorter_side_resized_and_its_centre_cropped(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    make_folder(tmp_path, {"train/b": 1, "test/a": 1, "test/b": 1})
    # A smooth image: one pixel more or less in the rounding of the longer side hardly changes it.
    x, y = np.meshgrid(np.linspace(0, 250, size[0]), np.linspace(0, 250, size[1]))
    image = Image.fromarray(np.stack([x, y, (x + y) / 2], -1).astype(np.uint8))
    (tmp_path / "train/a").mkdir()
    image.save(tmp_path / "train/a/0.png")
    expected = tv.center_crop(tv.resize(image, 16, InterpolationMode.BILINEAR), [16, 16])
    found = load(folder_spec(tmp_path), 16, NOWHERE).train.images[0].permute(1, 2, 0).numpy()
    assert np.abs(found.astype(int) - np.array(expected)).max() <= 10


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK"])
def test_folder_images_of_any_8_bit_mode_become_rgb(tmp_path: Path, mode: str) -> None:
    make_folder(tmp_path, {"train/a": 1, "train/b": 1, "test/a": 1, "test/b": 1})
    image = Image.open(tmp_path / "train/a/000.png").convert(mode)
    file = tmp_path / "train/a" / ("000.tif" if mode == "CMYK" else "000.png")
    (tmp_path / "train/a/000.png").unlink()
    image.save(file)
    found = load(folder_spec(tmp_path), 8, NOWHERE).train.images[0]
    assert np.array_equal(found.permute(1, 2, 0).numpy(), np.array(image.convert("RGB")))


def test_folder_of_one_colour_has_a_std_to_divide_by(tmp_path: Path) -> None:
    for file in ("a/0.png", "a/1.png", "b/0.png", "b/1.png"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / file)
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert (data.mean, data.std) == ((1.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def test_folder_that_is_missing_is_an_error_not_a_skip(tmp_path: Path) -> None:
    spec = folder_spec(tmp_path / "missing")
    assert "there is no folder" in error_of(spec)
    with pytest.raises(VitinitError, match="there is no folder"):
        unavailable(spec, NOWHERE)


def test_folder_that_is_empty(tmp_path: Path) -> None:
    assert "found 0 class folders" in error_of(folder_spec(tmp_path))


def test_folder_with_one_class(tmp_path: Path) -> None:
    make_folder(tmp_path, {"only": 3})
    assert "found 1 class folders, at least 2" in error_of(folder_spec(tmp_path))


def test_folder_with_a_class_without_images(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 3})
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/notes.txt").write_text("")
    assert f"{tmp_path / 'empty'} has no images" in error_of(folder_spec(tmp_path))


def test_folder_with_a_class_too_small_to_split(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 3, "b": 1})
    assert f"{tmp_path / 'b'} has one image" in error_of(folder_spec(tmp_path))


def test_folder_with_train_alone(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 2})
    assert "neither test nor val" in error_of(folder_spec(tmp_path))


def test_folder_whose_splits_differ_in_classes(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 2, "train/c": 2, "test/a": 1, "test/d": 1})
    message = error_of(folder_spec(tmp_path))
    assert "class count mismatch, 3 in train and 2 in test; only in one of them: b, c, d" in message


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A folder to which a test adds one bad file."""
    make_folder(tmp_path / "images", {"a": 2, "b": 2})
    return tmp_path / "images"


def test_folder_with_a_truncated_image(good: Path) -> None:
    content = (good / "a/000.png").read_bytes()
    (good / "a/bad.png").write_bytes(content[: len(content) // 2])
    assert f"cannot use the image {good / 'a/bad.png'}" in error_of(folder_spec(good))


def test_folder_with_a_file_that_is_no_image(good: Path) -> None:
    (good / "a/bad.jpg").write_text("<html>not found</html>")
    assert f"cannot use the image {good / 'a/bad.jpg'}" in error_of(folder_spec(good))


def test_folder_with_a_format_that_its_extensions_do_not_say(good: Path) -> None:
    Image.new("RGB", (8, 8)).save(good / "a/bad.png", format="TGA")
    message = error_of(folder_spec(good))
    assert f"cannot use the image {good / 'a/bad.png'}: it is no BMP, GIF, JPEG, PNG, PPM, TIFF or WEBP" in message


def test_a_gif_with_the_name_of_a_jpeg_is_read_as_pets_has_some(good: Path) -> None:
    before = len(load(folder_spec(good), 8, NOWHERE).train.labels)
    Image.new("RGB", (8, 8), (0, 255, 0)).save(good / "a/a_gif.jpg", format="GIF")
    Image.new("RGB", (8, 8), (0, 255, 0)).save(good / "a/b_gif.jpg", format="GIF")
    data = load(folder_spec(good), 8, NOWHERE)
    assert len(data.train.labels) > before


def test_folder_with_a_16_bit_image(good: Path) -> None:
    Image.fromarray(np.full((8, 8), 30_000, dtype=np.uint16)).save(good / "a/deep.png")
    message = error_of(folder_spec(good))
    assert str(good / "a/deep.png") in message
    assert "more than 8 bits" in message


@pytest.mark.parametrize("side", [10_000, 60_000])
def test_folder_with_an_image_bomb(good: Path, side: int) -> None:
    """PIL only warns of the smaller one; both are refused from the header, before anything is unpacked."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    (good / "a/bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    message = error_of(folder_spec(good))
    assert str(good / "a/bomb.png") in message
    assert "exceeds limit" in message


def test_folder_with_a_very_long_image_needs_no_more_memory_than_it_has_pixels(good: Path) -> None:
    """With the shorter side resized first, this image would be 256 x 12,800,000."""
    make_image(good / "a/long.png", 1, (50_000, 1))
    assert load(folder_spec(good), 256, NOWHERE).train.images.shape[-2:] == (256, 256)


def test_folder_with_a_symlink_to_a_file_outside(good: Path) -> None:
    make_image(good.parent / "outside.png", 1)
    (good / "a/link.png").symlink_to(good.parent / "outside.png")
    assert f"{good / 'a/link.png'} is not a file inside {good}" in error_of(folder_spec(good))


def test_folder_with_a_symlink_to_a_class_outside(good: Path) -> None:
    make_folder(good.parent, {"outside": 2})
    (good / "c").symlink_to(good.parent / "outside")
    assert f"{good / 'c/000.png'} is not a file inside {good}" in error_of(folder_spec(good))


def test_folder_with_a_broken_symlink(good: Path) -> None:
    (good / "a/link.png").symlink_to("missing.png")
    assert f"{good / 'a/link.png'} is not a file" in error_of(folder_spec(good))


def test_folder_with_a_pipe_does_not_wait_for_it(good: Path) -> None:
    os.mkfifo(good / "a/pipe.png")
    assert f"{good / 'a/pipe.png'} is not a file" in error_of(folder_spec(good))


def test_folder_may_link_within_itself_and_be_a_link_itself(good: Path) -> None:
    (good / "a/again.png").symlink_to("000.png")
    (good.parent / "alias").symlink_to(good)
    data = load(folder_spec(good.parent / "alias"), 8, NOWHERE)
    assert len(data.train.labels) + len(data.held_out.labels) == 5


def test_folder_with_a_png_whose_text_unpacks_to_gigabytes(good: Path) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

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


def test_folder_whose_splits_are_links_to_elsewhere(tmp_path: Path) -> None:
    for split in ("train", "test"):
        make_folder(tmp_path / f"outside/{split}", {"a": 2, "b": 2})
    (tmp_path / "root").mkdir()
    for split in ("train", "test"):
        (tmp_path / "root" / split).symlink_to(tmp_path / "outside" / split)
    assert f"is not a file inside {tmp_path / 'root'}" in error_of(folder_spec(tmp_path / "root"))


def test_folder_with_a_directory_named_as_an_image(good: Path) -> None:
    (good / "a/folder.png").mkdir()
    assert f"{good / 'a/folder.png'} is not a file" in error_of(folder_spec(good))


def test_folder_with_a_link_to_itself(good: Path) -> None:
    (good / "a/loop.png").symlink_to("loop.png")
    assert str(good / "a/loop.png") in error_of(folder_spec(good))


def test_folder_with_control_characters_in_a_name_sends_none_to_the_terminal(good: Path) -> None:
    (good / "a/\x1b]0;owned\x07.png").write_text("no image")
    assert error_of(folder_spec(good)).isprintable()
