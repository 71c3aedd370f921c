from __future__ import annotations

import ast
import hashlib
import os
import pickle
import random
import socket
import struct
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torchvision.datasets import CIFAR10, CIFAR100, SVHN
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tv

from benchmark import dataset_files, datasets
from benchmark.datasets import Data, data_dir, download, load, unavailable
from benchmark.spec import DatasetSpec
from initializers.errors import VitinitError

ROOT = Path(__file__).parents[2]
NOWHERE = Path("no-such-folder")
DIGITS = DatasetSpec(name="digits")
SVHN_SPEC = DatasetSpec(name="svhn")


def folder_spec(path: Path, train_size: int | None = None) -> DatasetSpec:
    return DatasetSpec(name="folder", path=str(path), train_size=train_size)


def error_of(spec: DatasetSpec, image_size: int = 8, data_dir: Path = NOWHERE) -> str:
    """The one line that `load` refuses this spec with."""
    with pytest.raises(VitinitError) as info:
        load(spec, image_size, data_dir)
    assert "\n" not in str(info.value)
    return str(info.value)


def counts(data: Data) -> list[int]:
    return torch.bincount(data.train.labels, minlength=len(data.classes)).tolist()


def rows(images: torch.Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


# --- digits, and what holds for every dataset ---


def test_digits_pixels_and_labels_are_those_of_scikit_learn() -> None:
    raw = load_digits()
    parts = train_test_split(raw.images, raw.target, test_size=360, stratify=raw.target, random_state=0)
    data = load(DIGITS, 8, NOWHERE)
    for split, images, labels in ((data.train, parts[0], parts[2]), (data.test, parts[1], parts[3])):
        assert split.images.dtype == torch.uint8
        assert split.labels.dtype == torch.int64
        assert split.images.shape == (len(labels), 3, 8, 8)
        assert split.labels.tolist() == labels.tolist()
        for channel in range(3):
            assert np.abs(split.images[:, channel].numpy() - images * 255 / 16).max() <= 0.5
    assert (len(data.train.labels), len(data.test.labels)) == (1437, 360)
    assert data.classes == tuple("0123456789")
    assert data.test.images.max() == 255


def test_digits_statistics_are_of_the_whole_training_split() -> None:
    data = load(DIGITS, 8, NOWHERE)
    pixels = data.train.images.numpy().astype(np.float64) / 255
    assert data.mean == pytest.approx(pixels.mean((0, 2, 3)), abs=1e-12)
    assert data.std == pytest.approx(pixels.std((0, 2, 3)), abs=1e-12)
    part = load(DatasetSpec(name="digits", train_size=100), 16, NOWHERE)
    assert (part.mean, part.std) == (data.mean, data.std)


def test_the_split_and_the_subset_never_change() -> None:
    """Records of different days and machines are compared, so these sums are part of the benchmark."""
    specs = [DatasetSpec(name="digits", train_size=size) for size in (None, 100)]
    checksums = [load(spec, 8, NOWHERE).checksum for spec in specs + specs]
    assert checksums[:2] == checksums[2:]
    assert [checksum[:16] for checksum in checksums[:2]] == ["504ec2f9a3c9ae05", "0557b415d5d0737b"]


def test_checksum_is_sha256_of_the_delivered_tensors() -> None:
    data = load(DatasetSpec(name="digits", train_size=50), 16, NOWHERE)
    parts = [data.train.images, data.train.labels, data.test.images, data.test.labels]
    assert data.checksum == hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


@pytest.mark.parametrize("size", [12, 5])
def test_images_are_resized_as_pil_does(size: int) -> None:
    native, resized = load(DIGITS, 8, NOWHERE), load(DIGITS, size, NOWHERE)
    assert resized.train.images.shape == (1437, 3, size, size)
    assert resized.test.images.shape == (360, 3, size, size)
    assert resized.train.images.dtype == torch.uint8
    for before, after in zip(native.test.images[:20], resized.test.images[:20], strict=True):
        image = Image.fromarray(before.permute(1, 2, 0).numpy())
        expected = np.array(image.resize((size, size), Image.Resampling.BILINEAR)).astype(int)
        assert np.abs(expected - after.permute(1, 2, 0).numpy()).max() <= 1


def test_subset_has_every_class_in_proportion_and_contains_the_smaller_ones() -> None:
    whole = load(DIGITS, 8, NOWHERE)
    share = np.array(counts(whole)) / 1437
    previous: set[bytes] = set()
    for size in (10, 100, 333, 1000, 1437):
        data = load(DatasetSpec(name="digits", train_size=size), 8, NOWHERE)
        assert sum(counts(data)) == size == len(data.train.images)
        assert np.abs(np.array(counts(data)) - share * size).max() <= 1.5
        assert min(counts(data)) >= 1
        assert previous <= rows(data.train.images)
        previous = rows(data.train.images)
        assert torch.equal(data.test.images, whole.test.images)
    assert torch.equal(data.train.images, whole.train.images)


def test_train_size_out_of_range() -> None:
    assert "1437" in error_of(DatasetSpec(name="digits", train_size=1438))
    assert "classes, 10" in error_of(DatasetSpec(name="digits", train_size=9))


def test_load_neither_reads_nor_changes_global_random_state(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 6, "b": 6})
    specs = [DatasetSpec(name="digits", train_size=100), folder_spec(tmp_path, 4)]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    first = [load(spec, 8, NOWHERE).checksum for spec in specs]
    after = random.getstate(), np.random.get_state(), torch.get_rng_state()
    assert before[0] == after[0]
    assert all(np.array_equal(old, new) for old, new in zip(before[1], after[1], strict=True))
    assert torch.equal(before[2], after[2])
    random.seed(2), np.random.seed(2), torch.manual_seed(2)
    assert [load(spec, 8, NOWHERE).checksum for spec in specs] == first


def test_unknown_name() -> None:
    spec = DatasetSpec(name="cifar01")
    assert "did you mean 'cifar10'" in error_of(spec)
    with pytest.raises(VitinitError, match="digits"):
        unavailable(spec, NOWHERE)
    with pytest.raises(VitinitError, match="digits"):
        download("mnist", NOWHERE)


def test_data_dir_is_argument_then_environment_then_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITINIT_DATA", "/from/environment")
    assert data_dir(Path("given")) == Path("given")
    assert data_dir(None) == Path("/from/environment")
    monkeypatch.delenv("VITINIT_DATA")
    assert data_dir(None) == Path("data")


# --- CIFAR ---


def test_cifar10_pixels_and_labels_are_those_in_the_files(cifar10_dir: Path) -> None:
    data = load(DatasetSpec(name="cifar10"), 32, cifar10_dir)
    assert (len(data.train.labels), len(data.test.labels)) == (50_000, 10_000)
    files = cifar10_dir / "cifar-10-batches-py"
    for split, start, name in (
        (data.train, 0, "data_batch_1"),
        (data.train, 40_000, "data_batch_5"),
        (data.test, 0, "test_batch"),
    ):
        batch = pickle.loads((files / name).read_bytes(), encoding="bytes")
        assert np.array_equal(split.images[start : start + 10_000].numpy().reshape(10_000, 3072), batch[b"data"])
        assert split.labels[start : start + 10_000].tolist() == batch[b"labels"]
    meta = pickle.loads((files / "batches.meta").read_bytes())
    assert list(data.classes) == meta["label_names"]
    for channel in range(3):
        pixels = data.train.images[:, channel] / 255
        assert pixels.mean().item() == pytest.approx(data.mean[channel], abs=1e-4)
        assert pixels.std().item() == pytest.approx(data.std[channel], abs=1e-4)


def test_cifar10_subset_is_balanced_and_contains_the_smaller_one(cifar10_dir: Path) -> None:
    large = load(DatasetSpec(name="cifar10", train_size=5000), 32, cifar10_dir)
    small = load(DatasetSpec(name="cifar10", train_size=1000), 32, cifar10_dir)
    assert counts(large) == [500] * 10
    assert counts(small) == [100] * 10
    assert rows(small.train.images) <= rows(large.train.images)


def test_truncated_cifar_file_is_an_error_that_names_it_and_leaves_it(cifar10_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for file in (cifar10_dir / "cifar-10-batches-py").iterdir():
        (folder / file.name).symlink_to(file)
    damaged = folder / "data_batch_3"
    content = damaged.read_bytes()[:1_000_000]
    damaged.unlink()
    damaged.write_bytes(content)
    spec = DatasetSpec(name="cifar10")
    assert unavailable(spec, tmp_path) is None
    message = error_of(spec, 32, tmp_path)
    expected = dict(CIFAR10.train_list)["data_batch_3"]
    for part in (str(damaged), "1000000 bytes", hashlib.md5(content).hexdigest(), expected, "vitinit data get cifar10"):
        assert part in message
    with pytest.raises(VitinitError, match="data_batch_3 is damaged"):
        download("cifar10", tmp_path)
    assert damaged.read_bytes() == content


def test_a_forged_cifar_file_is_not_unpickled(cifar10_dir: Path, tmp_path: Path) -> None:
    class Forged:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.mkdir, (tmp_path / "unpickled",)

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for file in (cifar10_dir / "cifar-10-batches-py").iterdir():
        (folder / file.name).symlink_to(file)
    for name in ("test_batch", "batches.meta"):
        (folder / name).unlink()
        (folder / name).write_bytes(pickle.dumps(Forged()))
    assert "test_batch is damaged" in error_of(DatasetSpec(name="cifar10"), 32, tmp_path)
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("cifar10", ["cifar-10-batches-py", "data_batch_1", "test_batch", "batches.meta"]),
        ("cifar100", ["cifar-100-python", "train", "test", "meta"]),
        ("svhn", ["train_32x32.mat", "test_32x32.mat"]),
    ],
)
def test_a_dataset_that_is_not_there_is_a_reason_not_an_error(name: str, files: list[str], tmp_path: Path) -> None:
    reason = unavailable(DatasetSpec(name=name), tmp_path)
    assert reason is not None
    assert "\n" not in reason
    for part in (*files, str(tmp_path), f"vitinit data get {name}"):
        assert part in reason
    assert error_of(DatasetSpec(name=name), 32, tmp_path) == reason


# --- SVHN: files of its format, made here; the real ones differ in size and md5 only ---


def make_svhn(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Files as published: X is 32 x 32 x 3 x N, y is N x 1 with 10 for the digit 0."""
    generator = np.random.default_rng(3)
    folder.mkdir(exist_ok=True)
    made = {}
    for split, number in (("train", 40), ("test", 20)):
        content = {
            "X": generator.integers(0, 256, (32, 32, 3, number), dtype=np.uint8),
            "y": (np.arange(number, dtype=np.uint8) % 10 + 1)[:, None],
        }
        scipy.io.savemat(folder / f"{split}_32x32.mat", content, do_compression=True)
        made[split] = content
    return made


def expect_svhn(monkeypatch: pytest.MonkeyPatch, folder: Path, url: str = "http://127.0.0.1:9") -> None:
    """Makes this project and torchvision expect the md5 of the made files, at this address."""
    for split in ("train", "test"):
        file = f"{split}_32x32.mat"
        md5 = hashlib.md5((folder / file).read_bytes()).hexdigest()
        monkeypatch.setitem(dataset_files.MD5["svhn"], file, md5)
        monkeypatch.setitem(SVHN.split_list, split, [f"{url}/{file}", file, md5])


def test_svhn_reads_the_mat_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_svhn(tmp_path)
    expect_svhn(monkeypatch, tmp_path)
    data = load(SVHN_SPEC, 32, tmp_path)
    for split, content in ((data.train, made["train"]), (data.test, made["test"])):
        assert split.images.is_contiguous()
        assert split.images.dtype == torch.uint8
        for index, label in enumerate(content["y"][:, 0]):
            assert np.array_equal(split.images[index].permute(1, 2, 0).numpy(), content["X"][..., index])
            assert split.labels[index] == (0 if label == 10 else label)
    assert data.mean == (0.4376821, 0.4437697, 0.47280442)
    assert data.std == (0.19803012, 0.20101562, 0.19703614)
    assert data.classes == tuple("0123456789")
    assert counts(load(DatasetSpec(name="svhn", train_size=20), 32, tmp_path)) == [2] * 10


def test_svhn_files_other_than_the_published_ones_are_refused(tmp_path: Path) -> None:
    make_svhn(tmp_path)
    message = error_of(SVHN_SPEC, 32, tmp_path)
    assert "train_32x32.mat is damaged" in message
    assert SVHN.split_list["train"][2] in message


def test_the_files_and_their_md5_are_those_of_torchvision() -> None:
    expected = {"svhn": {file: md5 for _, file, md5 in (SVHN.split_list["train"], SVHN.split_list["test"])}}
    for name, cifar in (("cifar10", CIFAR10), ("cifar100", CIFAR100)):
        files = [*cifar.train_list, *cifar.test_list, (cifar.meta["filename"], cifar.meta["md5"])]
        expected[name] = {f"{cifar.base_folder}/{file}": md5 for file, md5 in files}
    assert expected == dataset_files.MD5


# --- download ---


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a web server over tmp_path/served."""
    monkeypatch.setenv("no_proxy", "*")
    handler = partial(QuietHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_download_puts_the_checked_files_in_place(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_svhn(tmp_path / "served")
    expect_svhn(monkeypatch, tmp_path / "served", server)
    target = tmp_path / "new" / "data"
    download("svhn", target)
    assert sorted(path.name for path in target.iterdir()) == ["test_32x32.mat", "train_32x32.mat"]
    assert unavailable(SVHN_SPEC, target) is None
    assert len(load(SVHN_SPEC, 32, target).train.labels) == 40
    monkeypatch.setattr(datasets, "_torchvision", None)
    download("svhn", target)  # nothing is fetched again


def test_download_of_a_wrong_file_leaves_nothing(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_svhn(tmp_path / "served")
    expect_svhn(monkeypatch, tmp_path / "served", server)
    with (tmp_path / "served" / "train_32x32.mat").open("ab") as file:
        file.write(b"!")
    with pytest.raises(VitinitError, match=r"put train_32x32\.mat, test_32x32\.mat into"):
        download("svhn", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("name", ["cifar10", "svhn"])
def test_download_without_a_network_fails_quickly_and_says_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that accepts and never answers is the slow case."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(datasets, "DOWNLOAD_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        monkeypatch.setattr(CIFAR10, "url", address)
        monkeypatch.setitem(SVHN.split_list, "train", [address, *SVHN.split_list["train"][1:]])
        start = time.monotonic()
        with pytest.raises(VitinitError) as info:
            download(name, tmp_path)
    assert time.monotonic() - start < 5
    assert str(info.value).startswith(f"cannot download {name} (")
    assert ("batches.meta" if name == "cifar10" else "train_32x32.mat") in str(info.value)
    assert f"into {tmp_path}" in str(info.value)
    assert "\n" not in str(info.value)
    assert socket.getdefaulttimeout() is None


def test_there_is_nothing_to_download_for_digits_and_folder() -> None:
    with pytest.raises(VitinitError, match="comes with scikit-learn"):
        download("digits", NOWHERE)
    with pytest.raises(VitinitError, match="folder:PATH"):
        download("folder", NOWHERE)


# --- folders of images ---


def make_image(path: Path, value: int, size: tuple[int, int] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(value).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


def make_folder(root: Path, classes: dict[str, int]) -> None:
    for number, (name, images) in enumerate(classes.items()):
        for index in range(images):
            make_image(root / name / f"{index:03}.png", 1000 * number + index)


def test_folder_with_train_and_test(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/b": 3, "train/a": 4, "test/a": 1, "test/b": 2})
    (tmp_path / "train/a/notes.txt").write_text("not an image")
    (tmp_path / "train/a/._000.png").write_text("left by another system")
    (tmp_path / "train/.cache").mkdir()
    (tmp_path / "train/list.csv").write_text("")
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert data.classes == ("a", "b")
    assert data.train.labels.tolist() == [0] * 4 + [1] * 3
    assert data.test.labels.tolist() == [0, 1, 1]
    files = sorted(tmp_path.glob("train/a/0*.png")) + sorted(tmp_path.glob("train/b/*.png"))
    for image, file in zip(data.train.images, files, strict=True):
        assert np.array_equal(image.permute(1, 2, 0).numpy(), np.array(Image.open(file)))
    pixels = data.train.images.numpy() / 255
    assert data.mean == pytest.approx(pixels.mean((0, 2, 3)))
    assert data.std == pytest.approx(pixels.std((0, 2, 3)))
    assert unavailable(folder_spec(tmp_path), NOWHERE) is None


def test_folder_with_val_in_place_of_test(tmp_path: Path) -> None:
    make_folder(tmp_path, {"train/a": 2, "train/b": 2, "val/a": 1, "val/b": 1})
    assert len(load(folder_spec(tmp_path), 8, NOWHERE).test.labels) == 2


def test_folder_of_classes_gives_a_fifth_of_each_to_the_test_split(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 10, "b": 20, "c": 2})
    data = load(folder_spec(tmp_path), 8, NOWHERE)
    assert torch.bincount(data.test.labels).tolist() == [2, 4, 1]
    assert counts(data) == [8, 16, 1]
    assert not rows(data.train.images) & rows(data.test.images)
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
    Image.new("RGB", (8, 8)).save(good / "a/bad.png", format="GIF")
    assert f"cannot use the image {good / 'a/bad.png'}" in error_of(folder_spec(good))


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
    assert len(data.train.labels) + len(data.test.labels) == 5


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


# --- nothing foreign is ever run ---

PACKAGES = ("analysis", "benchmark", "initializers", "runners", "slurm")
RUNS_WHAT_IT_READS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "pickle.load",
    "pickle.loads",
    "marshal.loads",
    "shelve.open",
    "joblib.load",
    "pandas.read_pickle",
    "pd.read_pickle",
    "yaml.load",
    "yaml.full_load",
    "yaml.unsafe_load",
    "os.system",
    "os.popen",
}
MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}


def code_that_runs_data(source: str) -> list[str]:
    """Calls and imports through which the content of a file could be run as code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            name = (node.module or "").partition(".")[0]
            names = [f"{name}.{alias.name}" for alias in node.names]
            found += names if name in MODULES else [n for n in names if n in {*RUNS_WHAT_IT_READS, "torch.load"}]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            options = {option.arg: ast.unparse(option.value) for option in node.keywords}
            if name in RUNS_WHAT_IT_READS:
                found.append(name)
            if name.endswith("torch.load") and options.get("weights_only") != "True":
                found.append(f"{name} without weights_only=True")
            found += [f"{name}({key}=True)" for key in ("shell", "allow_pickle") if options.get(key) == "True"]
    return found


def test_nothing_in_the_packages_runs_what_it_reads() -> None:
    """The one exception, torchvision's CIFAR files, is unpickled by torchvision after their md5 sums are checked."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(files) > 20
    found = {str(path): calls for path in files if (calls := code_that_runs_data(path.read_text(encoding="utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import load",
        "import torch\ntorch.load(path)",
        "torch.load(path, weights_only=False)",
        "from torch import load",
        "yaml.load(text, Loader=yaml.SafeLoader)",
        "eval('1')",
        "exec(text)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
    ],
)
def test_the_check_above_finds_what_it_looks_for(source: str) -> None:
    assert code_that_runs_data(source)


def test_the_check_above_leaves_harmless_code_alone() -> None:
    source = "model.eval()\ntorch.load(path, weights_only=True)\nyaml.safe_load(text)\nre.compile(text)\nnp.load(path)"
    assert code_that_runs_data(source) == []
