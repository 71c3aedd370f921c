"""The loader that a run gets, and the line where it cannot have one."""

import sys

import pytest
import torch

from vitinit.benchmark.datasets.registry import load
from vitinit.benchmark.image_files import beton
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.loaders import base as loaders
from vitinit.runners.loaders.base import open_data

CPU = torch.device("cpu")
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
