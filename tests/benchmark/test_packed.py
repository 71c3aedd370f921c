"""ImageNet: preparing it from its image files, and opening what was prepared."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from tests.miniature import NAMES, linked_copy, make_source
from tests.processes import ROOT, fresh
from vitinit.benchmark.datasets import imagenet, registry
from vitinit.benchmark.datasets.load import download, load
from vitinit.benchmark.datasets.packed import Packed
from vitinit.benchmark.datasets.registry import unavailable
from vitinit.benchmark.image_files.full_size import FullSizeData
from vitinit.benchmark.image_files.packing import write_packed
from vitinit.benchmark.preparing import pack
from vitinit.benchmark.preparing.pack import prepare
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

IMAGENET = DatasetSpec(name="imagenet")
FEW = replace(imagenet.IMAGENET, classes=100, images=(125, 100))
"""ImageNet, had it so few classes and images."""
CLASSES = NAMES[:100]


def quiet(done: int, total: int) -> None:
    pass


def opened(data_dir: Path, **fields: object) -> FullSizeData:
    data = FEW.load(DatasetSpec.model_validate({"name": "imagenet", **fields}), 16, data_dir)
    assert isinstance(data, FullSizeData)
    return data


def refusal(source: Path, folder: Path, allow_incomplete: bool = False, dataset: Packed = FEW) -> str:
    with pytest.raises(VitinitError) as info:
        prepare(dataset, source, folder, allow_incomplete, quiet, 2)
    assert not folder.exists() or not folder.is_dir() or folder.name == "there"
    assert not list(folder.parent.glob(".*preparing"))
    return str(info.value)


def files(source: Path, split: str) -> list[Path]:
    return sorted((source / split).glob("*/*"))


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return make_source(tmp_path_factory.mktemp("few"), CLASSES)


@pytest.fixture(scope="module")
def data_dir(source, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(FEW, source, folder / "imagenet", False, quiet, 2)
    return folder


@pytest.fixture
def copy(source, tmp_path) -> Path:
    return linked_copy(source, tmp_path / "source")


@pytest.fixture
def prepared(data_dir, tmp_path) -> Path:
    """A prepared folder that may be changed."""
    return shutil.copytree(data_dir, tmp_path / "data")


def test_what_is_packed_is_every_file_unchanged_in_order(source, data_dir):
    data = opened(data_dir)
    assert data.classes == tuple(CLASSES)
    checksum = hashlib.sha256()
    for split, name in ((data.train, "train"), (data.held_out, "val")):
        content = (data_dir / "imagenet" / f"{name}.images").read_bytes()
        expected = files(source, name)
        assert len(split.labels) == len(expected) == {"train": 125, "val": 100}[name]
        for entry, label, path in zip(split.index, split.labels.tolist(), expected, strict=True):
            part = content[entry["offset"] : entry["offset"] + entry["length"]]
            assert part == path.read_bytes()
            assert entry["sha256"].tobytes() == hashlib.sha256(part).digest()
            assert CLASSES[label] == path.parent.name
        checksum.update(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in expected))
        checksum.update(np.array([CLASSES.index(path.parent.name) for path in expected], "<u2").tobytes())
    assert data.checksum == checksum.hexdigest()
    assert (data.mean, data.std) == (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)


def test_images_are_those_of_pil_the_odd_ones_too(source, data_dir):
    data = opened(data_dir)
    modes = set()
    for number, path in enumerate(files(source, "val")[:12]):
        with Image.open(path) as image:
            modes.add((image.format, image.mode))
            assert np.array_equal(np.asarray(data.held_out.image(number)), np.asarray(image.convert("RGB")))
    assert {("JPEG", "CMYK"), ("JPEG", "L"), ("PNG", "P"), ("JPEG", "RGB")} == modes


def test_a_subset_is_stratified_and_has_its_own_checksum(data_dir):
    whole = opened(data_dir)
    subset = opened(data_dir, train_size=110)
    assert len(subset.train.labels) == 110
    assert set(subset.train.labels.tolist()) == set(range(100))
    assert len(subset.held_out.labels) == 100
    assert len({whole.checksum, subset.checksum}) == 2
    assert opened(data_dir).checksum == whole.checksum
    with pytest.raises(VitinitError, match="train_size 99 is less than the number of classes"):
        opened(data_dir, train_size=99)


def test_the_checksum_sees_one_image(copy, data_dir, tmp_path):
    path = files(copy, "val")[50]
    path.unlink()
    Image.new("RGB", (40, 40)).save(path)
    prepare(FEW, copy, tmp_path / "data/imagenet", False, quiet, 1)
    assert opened(tmp_path / "data").checksum != opened(data_dir).checksum


def test_the_number_of_threads_changes_nothing(source, data_dir, tmp_path):
    told = []
    prepare(FEW, source, tmp_path / "imagenet", False, lambda *counts: told.append(counts), 5)
    for file in (data_dir / "imagenet").iterdir():
        assert (tmp_path / "imagenet" / file.name).read_bytes() == file.read_bytes(), file.name
    assert told == sorted(told)
    assert told[-1] == (225, 225)


def test_a_preparation_that_is_killed_leaves_nothing_that_counts(source, tmp_path):
    code = (
        "import os, signal; from dataclasses import replace; from pathlib import Path\n"
        "from vitinit.benchmark.datasets.imagenet import IMAGENET\n"
        "from vitinit.benchmark.preparing.pack import prepare\n"
        "kill = lambda done, total: done > 100 and os.kill(os.getpid(), signal.SIGKILL)\n"
        f"prepare(replace(IMAGENET, classes=100), Path({str(source)!r}), Path('imagenet').resolve(), True, kill, 1)"
    )
    assert fresh("-c", code, cwd=tmp_path, path=(ROOT,)).returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".imagenet.preparing"]
    assert unavailable(IMAGENET, tmp_path)
    prepare(FEW, source, tmp_path / "imagenet", False, quiet, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["imagenet"]
    assert unavailable(IMAGENET, tmp_path) is None


def test_two_at_once_do_not_disturb_one_another(source, tmp_path):
    messages = []

    def second(done: int, total: int) -> None:
        if not messages:
            with pytest.raises(VitinitError) as info:
                prepare(FEW, source, tmp_path / "imagenet", False, quiet, 1)
            messages.append(str(info.value))

    prepare(FEW, source, tmp_path / "imagenet", False, second, 1)
    assert messages == [f"another process is preparing {tmp_path / 'imagenet'}"]
    assert len(opened(tmp_path).train.labels) == 125


def test_another_number_of_images_has_to_be_allowed(source, tmp_path):
    assert imagenet.IMAGENET.images == (1_281_167, 50_000)
    for split, images in (("train", (101, 100)), ("val", (125, 101))):
        message = refusal(source, tmp_path / "imagenet", False, replace(FEW, images=images))
        assert f"{split}: found" in message
        assert "ImageNet-1K has 101; --allow-incomplete takes what is there" in message


@pytest.mark.parametrize(("counted", "says"), [(1, "files were added meanwhile"), (3, "files were removed meanwhile")])
def test_files_that_come_or_go_while_they_are_packed_are_noticed(source, tmp_path, counted, says):
    two = [(path, label) for label, path in enumerate(files(source, "val")[:2])]
    with pytest.raises(VitinitError, match=says):
        write_packed(tmp_path, tmp_path / "packed", CLASSES, {"train": (two, counted)}, 1, quiet)
    assert not (tmp_path / "packed").exists()


def cut_short(path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:-400])


NO_IMAGES: list[Callable[[Path], object]] = [
    cut_short,
    lambda path: path.write_text("no image"),
    lambda path: Image.new("1", (20_000, 20_000)).save(path, "PNG"),
    lambda path: Image.new("RGB", (40, 40)).save(path, "BMP"),
    lambda path: Image.new("I;16", (40, 40)).save(path, "PNG"),
    lambda path: path.symlink_to("/etc/hostname"),
    lambda path: path.symlink_to("nowhere.JPEG"),
]


@pytest.mark.long
def test_what_is_no_image_is_refused_by_name(copy, tmp_path):
    path = files(copy, "train")[5]
    for bad in NO_IMAGES:
        path.unlink()
        bad(path)
        assert path.name in refusal(copy, tmp_path / "imagenet")


def test_classes_must_be_those_of_imagenet(copy, tmp_path):
    shutil.rmtree(copy / "val" / CLASSES[5])
    assert f"classes that only one of train and val has: {CLASSES[5]}" in refusal(copy, tmp_path / "imagenet")
    shutil.rmtree(copy / "train" / CLASSES[5])
    assert "found 99 class folders, ImageNet-1K has 100" in refusal(copy, tmp_path / "imagenet")


def test_a_class_that_only_val_has_is_refused(copy, tmp_path):
    """Labels count classes in sorted order: those of its images, and of all classes behind, would be others."""
    shutil.copytree(copy / "val" / CLASSES[5], copy / "val" / f"{CLASSES[5]}a", symlinks=True)
    assert f"classes that only one of train and val has: {CLASSES[5]}a" in refusal(copy, tmp_path / "imagenet")


def test_another_layout_is_refused_with_what_to_do(tmp_path):
    assert "it must hold train/CLASS/*.JPEG and val/CLASS/*.JPEG" in refusal(tmp_path, tmp_path / "imagenet")
    (tmp_path / "ILSVRC2012_img_train.tar").touch()
    assert "torchvision.datasets.ImageNet(DIR, 'train')" in refusal(tmp_path, tmp_path / "imagenet")


def test_what_is_there_is_never_written_over(source, data_dir, tmp_path):
    (tmp_path / "there").mkdir()
    assert "is not prepared: move it away" in refusal(source, tmp_path / "there")
    with pytest.raises(VitinitError, match=r"is prepared already \(125 training images\)"):
        prepare(FEW, source, data_dir / "imagenet", False, quiet, 2)


def test_what_another_process_has_prepared_meanwhile_is_not_prepared_again(source, data_dir, tmp_path, monkeypatch):
    folder, told = tmp_path / "imagenet", []
    monkeypatch.setattr(pack, "check_room", lambda *_: shutil.copytree(data_dir / "imagenet", folder))
    with pytest.raises(VitinitError, match="is prepared already"):
        prepare(FEW, source, folder, False, lambda *done: told.append(done), 2)
    assert told == []


def test_a_disk_without_room_is_noticed_first(source, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    assert "GB are needed, 0.0 GB are free" in refusal(source, tmp_path / "imagenet")


def test_a_file_cut_short_changed_or_missing_is_refused_when_it_is_opened(prepared):
    for name in ("train.images", "val.images", "train.index.npy", "val.index.npy", "manifest.json"):
        path = prepared / "imagenet" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(VitinitError, match=rf"{name} is damaged .*prepare the dataset again"):
            opened(prepared)
        if not name.endswith(".images"):
            place = content.rindex(b'index_sha256": "') + 20 if name == "manifest.json" else len(content) // 2
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(VitinitError, match="damaged"):
                opened(prepared)
        path.unlink()
        assert "run 'vitinit data prepare imagenet --from DIR'" in unavailable(IMAGENET, prepared)
        with pytest.raises(VitinitError, match="vitinit data prepare imagenet"):
            load(IMAGENET, 16, prepared)
        path.write_bytes(content)
    assert unavailable(IMAGENET, prepared) is None


def test_a_changed_byte_of_an_image_is_refused_when_it_is_read(prepared):
    data = opened(prepared)
    with (prepared / "imagenet/train.images").open("r+b") as file:
        file.seek(int(data.train.index[7]["offset"]) + 100)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    data.train.image(6)
    with pytest.raises(VitinitError, match=r"image 7 of .*train\.images is damaged: prepare the dataset again"):
        data.train.image(7)


def test_it_cannot_be_downloaded(tmp_path):
    with pytest.raises(VitinitError, match="vitinit data prepare imagenet --from DIR"):
        download("imagenet", tmp_path)


def test_the_command_line_prepares_it(source, here, tmp_path, monkeypatch):
    dataset = replace(FEW, images=(126, 100))
    registry.get("imagenet")
    monkeypatch.setitem(registry.REGISTRY.known, "imagenet", dataset)
    arguments = ("data", "prepare", "imagenet", "--from", str(source), "--data-dir", "new/data")
    assert here(*arguments)[0] == 2
    status, output = here(*arguments, "--allow-incomplete")
    assert status == 0
    assert "125 training and 100 test images" in output
    manifest = json.loads((tmp_path / "new/data/imagenet/manifest.json").read_text())
    assert manifest["classes"] == CLASSES
    monkeypatch.setenv("VITINIT_DATA", "new/data")
    assert here("list", "datasets", "imagenet")[1].split()[-1] == "available"
    monkeypatch.setenv("VITINIT_DATA", "elsewhere")
    assert " 100  not prepared in elsewhere" in here("list", "datasets")[1]
    assert here("data", "prepare", "cifar10", "--from", "x")[0] == 2
