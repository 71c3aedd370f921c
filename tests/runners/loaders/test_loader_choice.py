"""Which loader a run gets, what is said where it cannot have it, and the order that all loaders share."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.image_files import beton
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.image_files.beton import how_to_prepare
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import derive, stream
from vitinit.runners.augmentation.crop_and_flip import crop_and_flip
from vitinit.runners.loaders import base as loaders_base
from vitinit.runners.loaders import choice, make_loader, open_data

CPU = torch.device("cpu")
DIGITS = DatasetSpec(name="digits")
GIB = 2**30


def folder_of_images(root: Path, count: int) -> DatasetSpec:
    for split in ("train", "test"):
        for label in "ab":
            (root / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / label / f"{number}.png")
    (root / "train/a/notes.txt").write_text("no image")
    (root / "train/a/.hidden.png").write_text("no image")
    return DatasetSpec(name="folder", path=str(root))


def test_auto_is_resident_up_to_a_quarter_of_the_memory():
    assert choice.choose(4 * GIB, 16 * GIB) == "resident"
    assert choice.choose(4 * GIB + 1, 16 * GIB) == "ffcv"


def test_images_of_all_runs_that_share_a_device_take_half_of_it():
    for runs, each in ((2, 4), (4, 2), (16, 0.5)):
        assert choice.choose(int(each * GIB), 16 * GIB, runs) == "resident"
        assert choice.choose(int(each * GIB) + 1, 16 * GIB, runs) == "ffcv"


def test_a_gpu_measures_2000_images_at_once_or_half_a_gibibyte_of_them():
    sizes = {32: 2000, 64: 2000, 224: 891, 384: 303, 20_000: 1}  # 224: 2**29 / (4 bytes * 3 colors * 224 * 224)
    assert {size: loaders_base.evaluation_batch("cuda", size) for size in sizes} == sizes
    assert loaders_base.evaluation_batch("cpu", 32) == loaders_base.evaluation_batch("cpu", 224) == 500


def test_the_decoded_size_is_known_before_decoding(tmp_path):
    for spec in (DIGITS, DatasetSpec(name="digits", train_size=100), folder_of_images(tmp_path / "images", 3)):
        data = load(spec, 16, tmp_path)
        assert datasets.decoded_size(spec, 16, tmp_path) == data.train.images.nbytes + data.held_out.images.nbytes


def test_what_does_not_fit_is_said_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(choice, "main_memory", lambda: 4 * datasets.decoded_size(DIGITS, 8, tmp_path))
    assert isinstance(open_data(DIGITS, 8, tmp_path), Data)
    monkeypatch.setattr(choice, "main_memory", lambda: 4 * datasets.decoded_size(DIGITS, 8, tmp_path) - 1)
    assert isinstance(open_data(DIGITS, 8, tmp_path, "resident"), Data)
    monkeypatch.setitem(sys.modules, "ffcv", None)
    with pytest.raises(VitinitError, match="digits at 8 px has .* of memory, so .*: FFCV is not installed; .*apt-get"):
        open_data(DIGITS, 8, tmp_path)
    with pytest.raises(VitinitError, match="^FFCV is not installed; .*libturbojpeg0-dev; then: make ffcv$"):
        open_data(DIGITS, 8, tmp_path, "ffcv")
    monkeypatch.setattr(beton, "ffcv_missing", lambda: None)
    with pytest.raises(VitinitError) as error:
        open_data(DatasetSpec(name="digits", train_size=100), 8, tmp_path, "ffcv")
    command = f"vitinit data prepare digits --image-size 8 --train-size 100 --data-dir {tmp_path}"
    assert str(error.value).startswith("digits[100] at 8 px is not prepared for FFCV in ")
    assert str(error.value).endswith(f"run '{command}'")
    assert "'folder:/my images'" in how_to_prepare(DatasetSpec(name="folder", path="/my images"), 32, tmp_path)


def test_what_cannot_be_prepared_is_refused(here, monkeypatch):
    """Options that do not go together; and nothing can be without FFCV."""
    for arguments in (("imagenet",), ("shapes",), ("mnist",)):
        assert here("data", "prepare", *arguments)[0] == 2
    monkeypatch.setitem(sys.modules, "ffcv", None)
    assert here("data", "prepare", "digits", "--image-size", "8")[0] == 2
    assert not Path("nothing").exists()


def test_the_packages_to_install_are_named_alike():
    root = Path(__file__).parents[3]
    named = re.search(r"--no-install-recommends (.*?);", beton.HOW_TO_INSTALL)
    assert named
    assert f"(Debian: {named.group(1)})\n" in (root / "Makefile").read_text()
    assert f"packages=({named.group(1)} " in (root / ".ci/run").read_text()


def test_what_is_drawn_is_named_by_seed_epoch_and_step():
    """Order, crops and flips of a record can be drawn again: `stream(seed, name, epoch, step)`, and nothing else."""
    recipe = Recipe(name="test", epochs=1, batch_size=10, lr=1e-3, crop_padding=2, hflip=0.5)
    images = torch.randint(256, (45, 3, 16, 16), generator=stream(0, "pixels"), dtype=torch.uint8)
    split = Split(images, torch.arange(45))
    data = Data(split, split, tuple(map(str, range(45))), (0.5,) * 3, (0.25,) * 3, "")
    for seed, epoch in ((0, 0), (0, 1), (3, 1)):
        order = torch.randperm(45, generator=stream(seed, "order", epoch))
        batches = list(make_loader(data, recipe, seed, CPU).train(epoch))
        assert len(batches) == 4
        for step, (found, labels) in enumerate(batches):
            numbers = order[10 * step : 10 * step + 10]
            changed = crop_and_flip(images[numbers], recipe, stream(seed, "augment", epoch, step))
            assert torch.equal(labels, numbers)
            torch.testing.assert_close(found, (changed.float() / 255 - 0.5) / 0.25, rtol=0, atol=1e-5)


def test_images_redrawn_by_seed_are_those_of_its_stream(tmp_path):
    spec = DatasetSpec(name="digits", train_size=100, train_draw="seed")
    drawn = open_data(spec, 8, tmp_path, seed=3)
    assert isinstance(drawn, Data)
    again = load(spec, 8, tmp_path, derive(3, "train_draw"))
    assert torch.equal(drawn.train.images, again.train.images)
    assert not torch.equal(drawn.train.images, load(spec, 8, tmp_path, derive(4, "train_draw")).train.images)
    cropped = open_data(spec, 8, tmp_path, seed=3, cropped=True)
    assert torch.equal(cropped.train.labels, drawn.train.labels), "the same images in their own size"


def test_memory_is_that_of_the_gpu_where_it_has_less(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(choice, "main_memory", lambda: 64 * GIB)
    for total, least in ((16 * GIB, 16 * GIB), (80 * GIB, 64 * GIB)):
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda device, total=total: SimpleNamespace(total_memory=total)
        )
        assert choice.device_memory("cuda") == least
        assert choice.device_memory("cpu") == 64 * GIB


def test_memory_is_what_the_control_group_and_those_above_it_leave(tmp_path):
    """Both layouts as the kernel's documentation has them: admin-guide/cgroup-v1/memory and cgroup-v2."""
    own = tmp_path / "cgroup"
    job = tmp_path / "slurm/job_7"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("max\n")
    (job.parent / "memory.max").write_text("3000\n")
    own.write_text("0::/slurm/job_7\n")
    assert choice.cgroup_limits(own, tmp_path) == [3000]
    (job / "memory.max").write_text("2000\n")
    assert choice.cgroup_limits(own, tmp_path) == [2000, 3000]

    first = tmp_path / "memory/slurm"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("1000\n")
    (tmp_path / "memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    own.write_text("9:name=systemd:/\n4:memory:/slurm\n1:cpu:/elsewhere\n0::/\n")
    assert choice.cgroup_limits(own, tmp_path) == [1000, 9223372036854771712]
    assert choice.cgroup_limits(tmp_path / "no Linux", tmp_path) == []


def test_memory_is_no_more_than_the_machine_has():
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert choice.main_memory() == min([physical, *choice.cgroup_limits()])
