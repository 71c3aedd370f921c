"""ImageNet: preparing it from its image files, and opening what was prepared."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from benchmark.datasets import imagenet
from benchmark.datasets.load import download, load
from benchmark.datasets.packed import Packed
from benchmark.datasets.registry import unavailable
from benchmark.preparing.pack import prepare
from benchmark.spec import DatasetSpec
from initializers.errors import VitinitError
from tests.miniature import NAMES, linked_copy

IMAGENET = DatasetSpec(name="imagenet")
ROOT = Path(__file__).parents[2]


def quiet(done: int, total: int) -> None:
    pass


def refusal(source: Path, folder: Path, allow_incomplete: bool = True, dataset: Packed = imagenet.IMAGENET) -> str:
    with pytest.raises(VitinitError) as info:
        prepare(dataset, source, folder, allow_incomplete, quiet, 2)
    assert "\n" not in str(info.value)
    assert not folder.exists() or not folder.is_dir() or folder.name == "there"
    assert not list(folder.parent.glob(".*preparing"))
    return str(info.value)


def files(source: Path, split: str) -> list[Path]:
    return sorted((source / split).glob("*/*"))


@pytest.fixture
def copy(imagenet_source, tmp_path) -> Path:
    return linked_copy(imagenet_source, tmp_path / "source")


@pytest.fixture
def prepared(imagenet_dir, tmp_path) -> Path:
    """A prepared folder that may be changed."""
    shutil.copytree(imagenet_dir, tmp_path / "data")
    return tmp_path / "data"


def test_what_is_packed_is_every_file_unchanged_in_order(imagenet_source, imagenet_dir):
    data = load(IMAGENET, 16, imagenet_dir)
    assert data.classes == tuple(NAMES)
    for split, name in ((data.train, "train"), (data.held_out, "val")):
        content = (imagenet_dir / "imagenet" / f"{name}.images").read_bytes()
        expected = files(imagenet_source, name)
        assert len(split.labels) == len(expected) == {"train": 1250, "val": 1000}[name]
        for entry, label, path in zip(split.index, split.labels.tolist(), expected, strict=True):
            part = content[entry["offset"] : entry["offset"] + entry["length"]]
            assert part == path.read_bytes()
            assert entry["sha256"].tobytes() == hashlib.sha256(part).digest()
            assert NAMES[label] == path.parent.name
    assert (data.mean, data.std) == (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)


def test_images_are_those_of_pil_the_odd_ones_too(imagenet_source, imagenet_dir):
    data = load(IMAGENET, 16, imagenet_dir)
    modes = set()
    for number, path in enumerate(files(imagenet_source, "val")[:12]):
        with Image.open(path) as image:
            modes.add((image.format, image.mode))
            assert np.array_equal(np.asarray(data.held_out.image(number)), np.asarray(image.convert("RGB")))
    assert {("JPEG", "CMYK"), ("JPEG", "L"), ("PNG", "P"), ("JPEG", "RGB")} == modes


def test_a_subset_is_stratified_and_has_its_own_checksum(imagenet_dir):
    whole = load(IMAGENET, 16, imagenet_dir)
    subset = load(DatasetSpec(name="imagenet", train_size=1100), 16, imagenet_dir)
    assert len(subset.train.labels) == 1100
    assert set(subset.train.labels.tolist()) == set(range(1000))
    assert len(subset.held_out.labels) == 1000
    assert len({whole.checksum, subset.checksum}) == 2
    assert load(IMAGENET, 16, imagenet_dir).checksum == whole.checksum
    with pytest.raises(VitinitError, match="train_size 999 is less than the number of classes"):
        load(DatasetSpec(name="imagenet", train_size=999), 16, imagenet_dir)


def test_the_checksum_sees_one_image(copy, imagenet_dir, tmp_path):
    path = files(copy, "val")[500]
    path.unlink()
    Image.new("RGB", (40, 40)).save(path)
    prepare(imagenet.IMAGENET, copy, tmp_path / "data/imagenet", True, quiet, 1)
    assert load(IMAGENET, 16, tmp_path / "data").checksum != load(IMAGENET, 16, imagenet_dir).checksum


def test_the_number_of_threads_changes_nothing(imagenet_source, imagenet_dir, tmp_path):
    told = []
    prepare(imagenet.IMAGENET, imagenet_source, tmp_path / "imagenet", True, lambda *counts: told.append(counts), 5)
    for file in (imagenet_dir / "imagenet").iterdir():
        assert (tmp_path / "imagenet" / file.name).read_bytes() == file.read_bytes(), file.name
    assert told == sorted(told)
    assert told[-1] == (2250, 2250)


def test_a_preparation_that_is_killed_leaves_nothing_that_counts(imagenet_source, tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path; from benchmark.preparing.pack import prepare\n"
        "from benchmark.datasets.imagenet import IMAGENET\n"
        "kill = lambda done, total: done > 1500 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "prepare(IMAGENET, Path(sys.argv[1]), Path(sys.argv[2]), True, kill, 1)"
    )
    command = [sys.executable, "-c", code, str(imagenet_source), str(tmp_path / "imagenet")]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [".imagenet.preparing"]
    assert unavailable(IMAGENET, tmp_path)
    prepare(imagenet.IMAGENET, imagenet_source, tmp_path / "imagenet", True, quiet, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["imagenet"]
    assert unavailable(IMAGENET, tmp_path) is None


def test_two_at_once_do_not_disturb_one_another(imagenet_source, tmp_path):
    messages = []

    def second(done: int, total: int) -> None:
        if not messages:
            with pytest.raises(VitinitError) as info:
                prepare(imagenet.IMAGENET, imagenet_source, tmp_path / "imagenet", True, quiet, 1)
            messages.append(str(info.value))

    prepare(imagenet.IMAGENET, imagenet_source, tmp_path / "imagenet", True, second, 1)
    assert messages == [f"another process is preparing {tmp_path / 'imagenet'}"]
    assert len(load(IMAGENET, 16, tmp_path).train.labels) == 1250


def test_another_number_of_images_has_to_be_allowed(imagenet_source, tmp_path):
    assert imagenet.IMAGENET.images == (1_281_167, 50_000)
    for split, images in (("train", (1001, 1000)), ("val", (1250, 1001))):
        message = refusal(imagenet_source, tmp_path / "imagenet", False, replace(imagenet.IMAGENET, images=images))
        assert f"{split}: found" in message
        assert "ImageNet-1K has 1,001; --allow-incomplete takes what is there" in message


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


def test_what_is_no_image_is_refused_by_name(copy, tmp_path):
    path = files(copy, "train")[5]
    for bad in NO_IMAGES:
        path.unlink()
        bad(path)
        assert path.name in refusal(copy, tmp_path / "imagenet")


def test_classes_must_be_those_of_imagenet(copy, tmp_path):
    shutil.rmtree(copy / "val" / NAMES[5])
    assert f"classes that only one of train and val has: {NAMES[5]}" in refusal(copy, tmp_path / "imagenet")
    shutil.rmtree(copy / "train" / NAMES[5])
    assert "found 999 class folders, ImageNet-1K has 1000" in refusal(copy, tmp_path / "imagenet")


def test_another_layout_is_refused_with_what_to_do(tmp_path):
    assert "it must hold train/CLASS/*.JPEG and val/CLASS/*.JPEG" in refusal(tmp_path, tmp_path / "imagenet")
    (tmp_path / "ILSVRC2012_img_train.tar").touch()
    assert "torchvision.datasets.ImageNet(DIR, 'train')" in refusal(tmp_path, tmp_path / "imagenet")


def test_what_is_there_is_never_written_over(imagenet_source, imagenet_dir, tmp_path):
    (tmp_path / "there").mkdir()
    assert "is not prepared: move it away" in refusal(imagenet_source, tmp_path / "there")
    with pytest.raises(VitinitError, match=r"is prepared already \(1,250 training images\)"):
        prepare(imagenet.IMAGENET, imagenet_source, imagenet_dir / "imagenet", True, quiet, 2)


def test_a_disk_without_room_is_noticed_first(imagenet_source, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 10**6))
    assert "GB are needed, 0.0 GB are free" in refusal(imagenet_source, tmp_path / "imagenet")


def test_a_file_cut_short_changed_or_missing_is_refused_when_it_is_opened(prepared):
    for name in ("train.images", "val.images", "train.index.npy", "val.index.npy", "manifest.json"):
        path = prepared / "imagenet" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(VitinitError, match=rf"{name} is damaged .*prepare the dataset again"):
            load(IMAGENET, 16, prepared)
        if not name.endswith(".images"):
            place = content.rindex(b'index_sha256": "') + 20 if name == "manifest.json" else len(content) // 2
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(VitinitError, match="damaged"):
                load(IMAGENET, 16, prepared)
        path.unlink()
        assert "run 'vitinit data prepare imagenet --from DIR'" in unavailable(IMAGENET, prepared)
        with pytest.raises(VitinitError, match="vitinit data prepare imagenet"):
            load(IMAGENET, 16, prepared)
        path.write_bytes(content)
    assert unavailable(IMAGENET, prepared) is None


def test_a_changed_byte_of_an_image_is_refused_when_it_is_read(prepared):
    data = load(IMAGENET, 16, prepared)
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


def test_the_command_line_prepares_it(imagenet_source, here, tmp_path, monkeypatch):
    arguments = ("data", "prepare", "imagenet", "--from", str(imagenet_source), "--data-dir", "new/data")
    assert here(*arguments)[0] == 2
    status, output = here(*arguments, "--allow-incomplete")
    assert status == 0
    assert "1,250 training and 1,000 test images" in output
    manifest = json.loads((tmp_path / "new/data/imagenet/manifest.json").read_text())
    assert manifest["classes"] == NAMES
    monkeypatch.setenv("VITINIT_DATA", "new/data")
    assert here("list", "datasets", "imagenet")[1].split()[-1] == "available"
    monkeypatch.setenv("VITINIT_DATA", "elsewhere")
    assert " 1,000  not prepared in elsewhere" in here("list", "datasets")[1]
    assert here("data", "prepare", "cifar10", "--from", "x")[0] == 2
