"""Which loader a run gets, what is said where it cannot have it, and the order that all loaders share."""

from __future__ import annotations

import sys

import pytest
import torch

from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.image_files import beton
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import stream
from vitinit.runners.augmentation.crop_and_flip import crop_and_flip
from vitinit.runners.loaders import choice, make_loader, open_data

CPU = torch.device("cpu")
DIGITS = DatasetSpec(name="digits")


@pytest.mark.parametrize(("runs", "share"), [(1, 4), (2, 4), (4, 8)])
def test_auto_keeps_in_memory_what_takes_a_quarter_of_it_or_of_all_runs_half(monkeypatch, tmp_path, runs, share):
    data = load(DIGITS, 8, tmp_path)
    size = data.train.images.nbytes + data.held_out.images.nbytes
    monkeypatch.setattr(choice, "device_memory", lambda device: share * size)
    assert isinstance(open_data(DIGITS, 8, tmp_path, runs=runs), Data)
    monkeypatch.setattr(choice, "device_memory", lambda device: share * size - 1)
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
