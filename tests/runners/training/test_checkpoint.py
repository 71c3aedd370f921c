"""Checkpoint files: damaged ones are known as such, the one before is used, nothing in them is executed."""

import os
import pickle
import random
from pathlib import Path

import pytest
import torch

from vitinit.runners.basics.setting import Refused, Stop
from vitinit.runners.one_run import claims
from vitinit.runners.training import checkpoint
from vitinit.runners.training.checkpoint import Checkpoints


@pytest.fixture
def reports():
    return []


@pytest.fixture
def checkpoints(tmp_path, reports):
    (tmp_path / ".step-00000003.ckpt.17.ab.tmp").write_bytes(b"half")  # of a saver that was killed
    (tmp_path / "claim.json").touch()
    return Checkpoints(tmp_path, 5.0, reports.append)


def state(step):
    return {"step": step, "weights": torch.randn(64, 16, generator=torch.Generator().manual_seed(step))}


def steps(checkpoints):
    return [found["step"] for found in checkpoints.newest_first()]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_damaged_newest_falls_back_to_the_one_before(checkpoints, tmp_path, reports):
    """Every kind of damage, at seeded random places; no file is touched, one line names it."""
    for step in (1, 2):
        checkpoints.save(state(step), step)
    newest = tmp_path / "step-00000002.ckpt"
    whole, dice = newest.read_bytes(), random.Random(0)
    damaged = [b"", whole + b"x", b"\0" * len(whole), whole.replace(b"checkpoint 1", b"checkpoint 2")]
    damaged += [whole[: dice.randrange(len(whole))] for _ in range(20)]
    for _ in range(40):
        at = dice.randrange(len(whole))
        damaged.append(whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1 :])
    for content in damaged:
        newest.write_bytes(content)
        reports.clear()
        assert steps(checkpoints) == [1]
        (report,) = reports
        assert (str(newest) in report, "\n" in report) == (True, False)
        assert newest.read_bytes() == content
    # those of a later step are of a future that is abandoned: they must not crowd out what is saved from here on
    for step in (40, 41):
        (tmp_path / f"step-{step:08d}.ckpt").write_bytes(b"damaged")
    for step in (2, 4, 6):
        checkpoints.save(state(step), step)
        assert steps(checkpoints)[0] == step
    assert files(tmp_path) == ["claim.json", "step-00000004.ckpt", "step-00000006.ckpt"]
    (tmp_path / "step-00000006.ckpt").write_bytes(b"damaged")
    next(checkpoints.newest_first())
    checkpoints.save(state(8), 8)
    assert files(tmp_path) == ["claim.json", "step-00000004.ckpt", "step-00000008.ckpt"], "the sound one stays"


def test_on_a_full_disk_all_but_the_newest_sound_one_make_room(checkpoints, tmp_path, monkeypatch):
    for step in (1, 2):
        checkpoints.save(state(step), step)
    there, write = [], checkpoint.write_atomically

    def full(path, content):
        there.append([file for file in files(tmp_path) if "step" in file])
        if len(there) == 1:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(checkpoint, "write_atomically", full)
    checkpoints.save(state(3), 3)
    assert there == [["step-00000001.ckpt", "step-00000002.ckpt"], ["step-00000002.ckpt"]]
    assert steps(checkpoints) == [3, 2]


class Mischief:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_what_cannot_be_read_now_is_not_taken_for_damaged(checkpoints, monkeypatch):
    """The run would begin anew, and its first save would remove the file."""
    checkpoints.save(state(5), 5)
    full = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")
    for raised, where, ends_with in (
        (full, (torch, "load"), MemoryError),
        (OSError(5, "Input/output error"), (Path, "read_bytes"), Refused),
    ):

        def fails(*given, raised=raised, **named):
            raise raised

        with monkeypatch.context() as patched:
            patched.setattr(*where, fails)
            with pytest.raises(ends_with):
                next(checkpoints.newest_first())
    assert steps(checkpoints) == [5]


def test_code_in_a_checkpoint_is_refused_not_run(checkpoints, tmp_path, reports, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in (bytes(checkpoint.pack({"a": Mischief()})), pickle.dumps(Mischief())):
        (tmp_path / "step-00000001.ckpt").write_bytes(content)
        assert steps(checkpoints) == []
        assert not (tmp_path / "executed").exists()
    assert len(reports) == 2


def test_a_checkpoint_of_another_user_is_passed_over(checkpoints, tmp_path, reports):
    checkpoints.save(state(1), 1)
    with claims.held(tmp_path / "run", Stop()) as claim:
        assert claim.users == {0, os.getuid()}
    assert steps(Checkpoints(tmp_path, 5.0, reports.append, claim.users)) == [1]
    assert reports == []
    assert steps(Checkpoints(tmp_path, 5.0, reports.append, {os.getuid() + 1})) == []
    assert "another user wrote it" in reports[0]


def test_saving_takes_a_hundredth_of_the_time(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(checkpoint, "write_atomically", lambda path, content: clock.__setitem__(0, clock[0] + 20))
    checkpoints = Checkpoints(tmp_path, 5.0, lambda text: None)
    assert Checkpoints(tmp_path, 0.0, lambda text: None).due()
    due = {now: clock.__setitem__(0, now) or checkpoints.due() for now in (0, 299, 300)}
    checkpoints.save(state(1), 1)  # takes 20 s
    due |= {now: clock.__setitem__(0, now) or checkpoints.due() for now in (320 + 1979, 320 + 1980)}
    assert due == {0: False, 299: False, 300: True, 320 + 1979: False, 320 + 1980: True}
