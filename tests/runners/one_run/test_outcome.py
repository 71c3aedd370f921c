"""What is said of a record that can be written nowhere."""

from __future__ import annotations

import tempfile

import pytest

from benchmark.records.store import Store
from initializers.errors import VitinitError
from runners.basics.setting import Interval
from runners.one_run.outcome import record
from runners.training.checkpoint import Checkpoints


def test_only_a_checkpoint_that_there_is_is_said_to_be_kept(recorded, tmp_path, monkeypatch):
    (tmp_path / "tiny").write_text("in the way")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    folder = tmp_path / "unfinished"
    folder.mkdir()
    checkpoints = Checkpoints(folder, Interval(), pytest.fail)
    with pytest.raises(VitinitError, match=r"no checkpoint of it could be saved: the same command begins it anew$"):
        record(recorded, Store(tmp_path), checkpoints)
    checkpoints.save({"step": 1}, 1)
    with pytest.raises(VitinitError, match=r"last checkpoint is kept: the same command goes on from there$"):
        record(recorded, Store(tmp_path), checkpoints)
