"""Digits, CIFAR and SVHN: what is read, what is refused, what is downloaded."""

from __future__ import annotations

import hashlib
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from dataset_helpers import NOWHERE, counts, error_of, folder_spec, make_folder, rows
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torchvision.datasets import CIFAR10, CIFAR100, SVHN

from vitinit.benchmark.datasets import cifar, registry
from vitinit.benchmark.datasets.downloaded import Downloaded
from vitinit.benchmark.datasets.load import data_dir, download, load
from vitinit.benchmark.datasets.registry import unavailable
from vitinit.benchmark.datasets.svhn import SVHN_CROPPED, Svhn
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

DIGITS = DatasetSpec(name="digits")
SVHN_SPEC = DatasetSpec(name="svhn")


# --- digits, and what holds for every dataset ---


def test_digits_pixels_and_labels_are_those_of_scikit_learn() -> None:
    raw = load_digits()
    parts = train_test_split(raw.images, raw.target, test_size=360, stratify=raw.target, random_state=0)
    data = load(DIGITS, 8, NOWHERE)
    for split, images, labels in ((data.train, parts[0], parts[2]), (data.held_out, parts[1], parts[3])):
        assert split.images.dtype == torch.uint8
        assert split.labels.dtype == torch.int64
        assert split.images.shape == (len(labels), 3, 8, 8)
        assert split.labels.tolist() == labels.tolist()
        for channel in range(3):
            assert np.abs(split.images[:, channel].numpy() - images * 255 / 16).max() <= 0.5
    assert (len(data.train.labels), len(data.held_out.labels)) == (1437, 360)
    assert data.classes == tuple("0123456789")
    assert data.held_out.images.max() == 255


def test_digits_statistics_are_of_the_whole_training_split() -> None:
    data = load(DIGITS, 8, NOWHERE)
    pixels = data.train.images.numpy().astype(np.float64) / 255
    assert data.mean == pytest.approx(pixels.mean((0, 2, 3)), abs=1e-12)
    assert data.std == pytest.approx(pixels.std((0, 2, 3)), abs=1e-12)
    part = load(DatasetSpec(name="digits", train_size=100), 16, NOWHERE)
    assert (part.mean, part.std) == (data.mean, data.std)
    tensors = [part.train.images, part.train.labels, part.held_out.images, part.held_out.labels]
    assert part.checksum == hashlib.sha256(b"".join(each.numpy().tobytes() for each in tensors)).hexdigest()


def test_the_split_and_the_subset_never_change() -> None:
    """Records of different days and machines are compared, so these sums are part of the benchmark."""
    specs = [DatasetSpec(name="digits", train_size=size) for size in (None, 100)]
    checksums = [load(spec, 8, NOWHERE).checksum for spec in specs + specs]
    assert checksums[:2] == checksums[2:]
    assert [checksum[:16] for checksum in checksums[:2]] == ["504ec2f9a3c9ae05", "0557b415d5d0737b"]


def test_images_are_resized_as_pil_does() -> None:
    native = load(DIGITS, 8, NOWHERE)
    for size in (12, 5):
        resized = load(DIGITS, size, NOWHERE)
        assert resized.train.images.shape == (1437, 3, size, size)
        for before, after in zip(native.held_out.images[:20], resized.held_out.images[:20], strict=True):
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
        assert torch.equal(data.held_out.images, whole.held_out.images)
    assert torch.equal(data.train.images, whole.train.images)


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


def test_data_dir_is_argument_then_environment_then_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITINIT_DATA", "/from/environment")
    assert data_dir(Path("given")) == Path("given")
    assert data_dir(None) == Path("/from/environment")
    monkeypatch.delenv("VITINIT_DATA")
    assert data_dir(None) == Path("data")


# --- CIFAR ---


@pytest.fixture
def small_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files as published, with ten images each, whose md5 this project and torchvision now expect."""
    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()

    def made(file: str) -> str:
        images = np.random.default_rng(sum(file.encode())).integers(0, 256, (10, 3072), dtype=np.uint8)
        content = pickle.dumps({"label_names": list("abcdefghij"), "data": images, "labels": [*range(10)]})
        (folder / file).write_bytes(content)
        md5 = hashlib.md5(content).hexdigest()
        monkeypatch.setitem(cifar.CIFAR10.files, f"{folder.name}/{file}", md5)
        return md5

    monkeypatch.setattr(CIFAR10, "train_list", [[file, made(file)] for file, _ in CIFAR10.train_list])
    monkeypatch.setattr(CIFAR10, "test_list", [[file, made(file)] for file, _ in CIFAR10.test_list])
    monkeypatch.setitem(CIFAR10.meta, "md5", made(CIFAR10.meta["filename"]))
    monkeypatch.setitem(vars(cifar.CIFAR10), "images", (50, 10))
    return folder


def test_cifar10_pixels_and_labels_are_those_in_the_files(small_cifar: Path, tmp_path: Path) -> None:
    data = load(DatasetSpec(name="cifar10"), 32, tmp_path)
    for split, names in ((data.train, [f"data_batch_{i}" for i in range(1, 6)]), (data.held_out, ["test_batch"])):
        pixels = np.concatenate([pickle.loads((small_cifar / name).read_bytes())["data"] for name in names])
        assert np.array_equal(split.images.numpy(), pixels.reshape(-1, 3, 32, 32))
        assert split.labels.tolist() == [*range(10)] * len(names)
    assert data.classes == tuple("abcdefghij")


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="needs a file that cannot be read from its start")
def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    for file in SVHN_CROPPED.files:
        (tmp_path / file).symlink_to("/proc/self/mem")
    for use in (lambda: download("svhn", tmp_path), lambda: load(DatasetSpec(name="svhn"), 32, tmp_path)):
        with pytest.raises(VitinitError, match=f"^{tmp_path}/train_32x32.mat cannot be read: Input/output error$"):
            use()


def test_a_forged_cifar_file_is_not_unpickled(small_cifar: Path, tmp_path: Path) -> None:
    class Forged:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.mkdir, (tmp_path / "unpickled",)

    forged, published = small_cifar / "test_batch", cifar.CIFAR10.files["cifar-10-batches-py/test_batch"]
    for name in ("test_batch", "batches.meta"):
        (small_cifar / name).write_bytes(content := pickle.dumps(Forged()))
    message = error_of(DatasetSpec(name="cifar10"), 32, tmp_path)
    for part in (str(forged), f"{len(content)} bytes", hashlib.md5(content).hexdigest(), published):
        assert part in message
    with pytest.raises(VitinitError, match="test_batch is damaged: .* run 'vitinit data get cifar10'"):
        download("cifar10", tmp_path)
    assert forged.read_bytes() == content
    assert not (tmp_path / "unpickled").exists()


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
    monkeypatch.setitem(vars(SVHN_CROPPED), "images", (40, 20))
    for split in ("train", "test"):
        file = f"{split}_32x32.mat"
        md5 = hashlib.md5((folder / file).read_bytes()).hexdigest()
        monkeypatch.setitem(SVHN_CROPPED.files, file, md5)
        monkeypatch.setitem(SVHN.split_list, split, [f"{url}/{file}", file, md5])


def test_svhn_reads_the_mat_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_svhn(tmp_path)
    expect_svhn(monkeypatch, tmp_path)
    data = load(SVHN_SPEC, 32, tmp_path)
    for split, content in ((data.train, made["train"]), (data.held_out, made["test"])):
        assert split.images.is_contiguous()
        assert split.images.dtype == torch.uint8
        for index, label in enumerate(content["y"][:, 0]):
            assert np.array_equal(split.images[index].permute(1, 2, 0).numpy(), content["X"][..., index])
            assert split.labels[index] == (0 if label == 10 else label)
    assert data.mean == (0.4376821, 0.4437697, 0.47280442)
    assert data.std == (0.19803012, 0.20101562, 0.19703614)
    assert data.classes == tuple("0123456789")
    assert counts(load(DatasetSpec(name="svhn", train_size=20), 32, tmp_path)) == [2] * 10


def test_the_files_and_their_md5_are_those_of_torchvision() -> None:
    expected = {"svhn": {file: md5 for _, file, md5 in (SVHN.split_list["train"], SVHN.split_list["test"])}}
    for name, theirs in (("cifar10", CIFAR10), ("cifar100", CIFAR100)):
        files = [*theirs.train_list, *theirs.test_list, (theirs.meta["filename"], theirs.meta["md5"])]
        expected[name] = {f"{theirs.base_folder}/{file}": md5 for file, md5 in files}
    found = {name: registry.get(name) for name in registry.names()}
    assert expected == {name: each.files for name, each in found.items() if isinstance(each, Downloaded)}


# --- download ---


def test_download_puts_the_checked_files_in_place(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_svhn(tmp_path / "served")
    expect_svhn(monkeypatch, tmp_path / "served", server)
    target = tmp_path / "new" / "data"
    download("svhn", target)
    assert sorted(path.name for path in target.iterdir()) == ["test_32x32.mat", "train_32x32.mat"]
    assert unavailable(SVHN_SPEC, target) is None
    assert len(load(SVHN_SPEC, 32, target).train.labels) == 40
    monkeypatch.setattr(Svhn, "torchvision", None)
    download("svhn", target)  # nothing is fetched again


def test_download_of_a_wrong_file_leaves_nothing(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_svhn(tmp_path / "served")
    expect_svhn(monkeypatch, tmp_path / "served", server)
    with (tmp_path / "served" / "train_32x32.mat").open("ab") as file:
        file.write(b"!")
    with pytest.raises(VitinitError, match=r"put train_32x32\.mat, test_32x32\.mat into"):
        download("svhn", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []
