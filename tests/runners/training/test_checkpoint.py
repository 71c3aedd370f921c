"""Checkpoint files: damaged ones are known as such, the one before is used, nothing in them is executed."""

import errno
import os
import pickle
import random
from pathlib import Path

import pytest
import torch

from vitinit.benchmark.files import atomic
from vitinit.initializers.errors import VitinitError
from vitinit.runners.training import checkpoint
from vitinit.runners.training.checkpoint import Checkpoints


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def checkpoints(tmp_path, reports) -> Checkpoints:
    return Checkpoints(tmp_path, 5.0, reports.append)


def state(step: int) -> dict:
    generator = torch.Generator().manual_seed(step)
    return {"step": step, "weights": torch.randn(64, 16, generator=generator), "history": [{"loss": 0.1 + step}]}


def test_a_damaged_newest_falls_back_to_the_one_before(checkpoints, tmp_path, reports):
    """Every kind of damage, at seeded random places; no file is touched, one line names it."""
    checkpoints.save(state(1), 1)
    checkpoints.save(state(2), 2)
    newest = tmp_path / "step-00000002.ckpt"
    whole = newest.read_bytes()
    dice = random.Random(0)
    damaged = [whole[: dice.randrange(len(whole))] for _ in range(20)]
    for _ in range(40):
        at = dice.randrange(len(whole))
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1 :])
    damaged += [
        b"",
        b"\0" * len(whole),
        whole + b"x",
        whole.replace(b"checkpoint 1", b"checkpoint 2"),
    ]
    for content in damaged:
        newest.write_bytes(content)
        reports.clear()
        assert [found["step"] for found in checkpoints.newest_first()] == [1]
        assert len(reports) == 1
        assert str(newest) in reports[0]
        assert "\n" not in reports[0]
        assert newest.read_bytes() == content


class Mischief:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_what_cannot_be_read_now_is_not_taken_for_damaged(checkpoints, tmp_path, monkeypatch):
    """The run would begin anew, and its first save would remove the file."""
    checkpoints.save(state(5), 5)
    full = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")
    for raised, where, ends_with in (
        (MemoryError(), (torch, "load"), MemoryError),
        (full, (torch, "load"), MemoryError),
        (OSError(5, "Input/output error"), (Path, "read_bytes"), VitinitError),
    ):

        def fails(*given, raised=raised, **named):
            raise raised

        with monkeypatch.context() as patched:
            patched.setattr(*where, fails)
            with pytest.raises(ends_with):
                next(checkpoints.newest_first())
    (sound,) = checkpoints.newest_first()
    assert sound["step"] == 5


def test_code_in_a_checkpoint_is_refused_not_run(checkpoints, tmp_path, reports, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in (bytes(checkpoint.pack({"a": Mischief()})), pickle.dumps(Mischief())):
        (tmp_path / "step-00000001.ckpt").write_bytes(content)
        assert list(checkpoints.newest_first()) == []
        assert not (tmp_path / "executed").exists()
    assert len(reports) == 2


def failing_fsync(times: int):
    left = iter(range(times))

    def fsync(descriptor: int) -> None:
        if next(left, None) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return fsync


def test_on_a_full_disk_the_older_one_makes_room_else_the_old_ones_stay(checkpoints, tmp_path, reports, monkeypatch):
    checkpoints.save(state(1), 1)
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", failing_fsync(99))
        checkpoints.save(state(2), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.ckpt"]
    (report,) = reports
    assert "No space left on device" in report
    assert "step 2" in report
    checkpoints.save(state(2), 2)
    monkeypatch.setattr(atomic.os, "fsync", failing_fsync(1))
    checkpoints.save(state(3), 3)
    assert [found["step"] for found in checkpoints.newest_first()] == [3, 2]
    assert reports == [report]


def test_unusable_files_of_a_later_step_do_not_crowd_out_new_ones(checkpoints, tmp_path, reports):
    """The run begins anew at step 0 because none can be used: what it saves then must stay."""
    for step in (40, 41):
        (tmp_path / f"step-{step:08d}.ckpt").write_bytes(b"damaged")
    assert list(checkpoints.newest_first()) == []
    for step in (2, 4, 6):
        checkpoints.save(state(step), step)
        assert next(checkpoints.newest_first())["step"] == step
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004.ckpt", "step-00000006.ckpt"]


def test_what_a_killed_saver_left_is_removed_and_what_is_no_checkpoint_is_left_alone(tmp_path):
    (tmp_path / ".step-00000003.ckpt.17.ab.tmp").write_bytes(b"half")
    checkpoints = Checkpoints(tmp_path, 5.0, lambda text: None)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "claim.json").touch()
    checkpoints.save(state(1), 1)
    checkpoints.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["claim.json"]


def test_saving_takes_a_hundredth_of_the_time(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "write_atomically", lambda path, content: clock.__setitem__(0, clock[0] + 20))
    checkpoints = Checkpoints(tmp_path, 5.0, lambda text: None)
    assert Checkpoints(tmp_path, 0.0, lambda text: None).due()
    assert not checkpoints.due()
    clock[0] = 300
    assert checkpoints.due()
    checkpoints.save(state(1), 1)  # takes 20 s
    for now, due in ((320 + 300, False), (320 + 1979, False), (320 + 1980, True)):
        clock[0] = now
        assert checkpoints.due() is due
