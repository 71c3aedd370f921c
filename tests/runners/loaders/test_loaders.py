"""Images from the disk by timm's transforms, whatever the threads and processes; the loader that a run gets."""

import random
import shutil
import sys
import threading
from functools import partial

import pytest
import torch
from timm.data import create_transform

from tests.runners import small_run
from vitinit.benchmark.datasets.registry import load
from vitinit.benchmark.image_files import beton
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import derive
from vitinit.runners.loaders import base as loaders
from vitinit.runners.loaders.base import make_loader, open_data
from vitinit.runners.training.distributed import World

CPU = torch.device("cpu")
SIZE = 32


recipe = partial(small_run.recipe, batch_size=100, crop_pct=0.9)


def opened(folder, size=SIZE):
    return load(DatasetSpec(name="folder", path=str(folder)), size, folder, cropped=True)


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("batch")]


@pytest.mark.parametrize(("statistics", "crop_pct"), [("dataset", 0.875), ("imagenet", 1.0)])
def test_test_images_are_timms_but_for_the_last_bit_of_normalising(photographs, statistics, crop_pct):
    data = opened(photographs, 128)
    own = {"mean": data.mean, "std": data.std} if statistics == "dataset" else {}
    evaluation = create_transform((3, 128, 128), interpolation="bicubic", crop_pct=crop_pct, **own)
    images, labels = next(make_loader(data, recipe(crop_pct=crop_pct, statistics=statistics), 0, CPU).held_out())
    assert torch.equal(labels, data.held_out.labels)
    for number, ours in list(enumerate(images))[::9]:
        torch.testing.assert_close(ours, evaluation(data.held_out.image(number)), rtol=0, atol=1e-6)


def test_training_images_are_cropped_and_flipped_at_random_as_timm_does(photographs):
    data = opened(photographs)
    loader = make_loader(data, recipe(crop_scale=(0.2, 1.0), hflip=0.3), 5, CPU)
    fields = {"interpolation": "random", "color_jitter": None, "mean": data.mean, "std": data.std}
    timm = create_transform((3, SIZE, SIZE), is_training=True, scale=(0.2, 1.0), hflip=0.0, **fields)
    flips = 0
    images, targets = next(loader.train(1))
    for number, target, ours in zip(loader.order(1).tolist(), targets.tolist(), images, strict=False):
        random.seed(derive(5, "augment", 1, number))
        expected = timm(data.train.image(number))
        if random.random() < 0.3:
            expected, flips = expected.flip(-1), flips + 1
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
        assert target == data.train.labels[number]
    assert 10 < flips < 50


def test_threads_processes_and_the_point_of_a_resume_change_nothing(photographs):
    data, settings = opened(photographs), recipe(batch_size=24, mix_images=6, **small_run.EVERYTHING["files"])
    torch.set_num_threads(1)
    alone = list(make_loader(data, settings, 7, CPU).train(2))
    torch.set_num_threads(3)
    assert len(alone) == len(data.train.labels) // 24
    for size in (1, 3):
        parts = [list(make_loader(data, settings, 7, CPU, World(rank, size)).train(2, 4)) for rank in range(size)]
        for step, (images, targets) in enumerate(alone[4:]):
            assert torch.equal(images, torch.cat([part[step][0] for part in parts]))
            assert torch.equal(targets, torch.cat([part[step][1] for part in parts]))
    ((whole, _),) = make_loader(data, settings, 7, CPU).held_out()
    shares = [
        images for rank in range(3) for images, _ in make_loader(data, settings, 7, CPU, World(rank, 3)).held_out()
    ]
    assert torch.equal(whole, torch.cat(shares))


def test_an_early_end_leaves_no_threads_and_an_error_in_one_ends_the_iteration(photographs, tmp_path):
    copy = shutil.copytree(photographs, tmp_path / "copy")
    data = opened(copy)
    loader = make_loader(data, recipe(batch_size=20), 0, CPU)
    batches = loader.train(0)
    next(batches)
    batches.close()
    bad = sorted((copy / "train").glob("*/*"))[int(loader.order(0)[70])]
    bad.write_bytes(b"damage")
    batches = loader.train(0)
    with pytest.raises(VitinitError, match=f"cannot use the image {bad}: it is no "):
        list(batches)
    assert list(batches) == []


# --- the loader that a run gets ---


DIGITS = DatasetSpec(name="digits")


@pytest.mark.parametrize(("runs", "share"), [(1, 4), (2, 4), (4, 8)])
def test_auto_keeps_in_memory_what_takes_a_quarter_of_it_or_of_all_runs_half(monkeypatch, tmp_path, runs, share):
    data = load(DIGITS, 8, tmp_path)
    size = data.train.images.nbytes + data.held_out.images.nbytes
    monkeypatch.setattr(loaders, "device_memory", lambda device: share * size)
    assert isinstance(open_data(DIGITS, 8, tmp_path, runs=runs), Data)
    monkeypatch.setattr(loaders, "device_memory", lambda device: share * size - 1)
    assert isinstance(open_data(DIGITS, 8, tmp_path, "resident", runs=runs), Data)
    monkeypatch.setitem(sys.modules, "ffcv", None)
    with pytest.raises(VitinitError, match="digits at 8 px has .* of memory.*: FFCV is not installed; .*apt-get"):
        open_data(DIGITS, 8, tmp_path, runs=runs)


def test_what_ffcv_cannot_read_is_said_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(beton, "ffcv_missing", lambda: None)
    with pytest.raises(VitinitError) as error:
        open_data(DatasetSpec(name="digits", train_size=100), 8, tmp_path, "ffcv")
    command = f"vitinit data prepare digits --image-size 8 --train-size 100 --data-dir {tmp_path}"
    assert str(error.value).startswith("digits[100] at 8 px is not prepared for FFCV in ")
    assert str(error.value).endswith(f"run '{command}'")
    for fields in ({"val_size": 10}, {"train_draw": "seed", "train_size": 100}):
        with pytest.raises(VitinitError, match="--loader resident"):
            open_data(DatasetSpec(name="digits", **fields), 8, tmp_path, "ffcv")
