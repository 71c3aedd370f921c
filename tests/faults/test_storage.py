"""Full disks and folders that cannot be written: a clear message, nothing lost, nothing half-written read as good."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmark.records.store import Store
from initializers.errors import VitinitError
from runners.basics.stop import Stop
from runners.one_run.carry_out import carry_out
from tests.faults.harness import assert_same, cells, finish, setting, thorough
from tests.processes import FORKS, PATIENCE, ROOT, call

# Root may write everywhere, unless it gives that up.
UNPRIVILEGED = () if os.geteuid() else ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Take all space of a disk, but for so many bytes."""
    ballast = folder / f"ballast{len(list(folder.iterdir()))}"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    ballast.write_bytes(b"x" * (free - leave))
    return ballast


def _carry_out(cell, where, fault, said) -> None:
    """Carry out a run to which something happens after its first epoch; what it says goes to the queue."""

    def on_event(event) -> None:
        if event.trouble:
            said.put(event.trouble)
        if event.epoch and event.epoch.epoch == 1:
            fault(where)

    try:
        said.put(carry_out(cell, where, Stop(), on_event).status)
    except VitinitError as error:
        said.put(f"VitinitError: {error}")


def carried_out(cell, where, fault) -> list[str]:
    said = FORKS.Queue()
    process = FORKS.Process(target=_carry_out, args=(cell, where, fault, said))
    process.start()
    heard = []
    while not heard or (heard[-1] not in ("done", "failed") and not heard[-1].startswith("VitinitError")):
        heard.append(said.get(timeout=PATIENCE))
    process.join()
    assert process.exitcode == 0
    return heard


def no_fsync(where) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = fsync


def full(where) -> None:
    fill(where.root)


def room_for_a_record_only(where) -> None:
    fill(where.root, leave=40_000)


def remount(folder: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)


def read_only(where) -> None:
    remount(where.root, "ro")


def check_message_and_fetch(message: str, where, cell) -> None:
    """The message names where the record is safe, and the command that puts it in place works."""
    assert "No space left on device" in message
    assert Store(where.root).read(where.study).done == {}
    assert Store(where.root).read(where.study).problems == []
    command = re.search(r"mv (\S+) (\S+)$", message)
    shutil.move(command[1], command[2])
    assert cell.spec.run_id in Store(where.root).read(where.study).done


@thorough
def test_without_space_for_a_checkpoint_the_run_goes_on(small_disk, tmp_path, tally):
    cell = cells(tmp_path)[0]
    where, left_alone = setting(small_disk, steps=8, keep_weights=False), setting(tmp_path / "left alone")
    heard = carried_out(cell, where, room_for_a_record_only)
    assert heard[-1] == "done"
    assert any("no checkpoint at step" in text and "No space left on device" in text for text in heard)
    record = Store(where.root).read(where.study).done[cell.spec.run_id]
    assert record.without_times() == finish(cell, left_alone).without_times()
    tally("no space for a checkpoint", 1, 1)


@thorough
def test_without_space_for_a_record_it_is_safe_elsewhere(small_disk, tmp_path, tally):
    cell = cells(tmp_path)[0]
    where, left_alone = (
        setting(small_disk, steps=10**6, keep_weights=False),
        setting(tmp_path / "left alone"),
    )
    heard = carried_out(cell, where, full)
    for ballast in small_disk.glob("ballast*"):
        ballast.unlink()
    check_message_and_fetch(heard[-1], where, cell)
    record = Store(where.root).read(where.study).done[cell.spec.run_id]
    assert record.without_times() == finish(cell, left_alone).without_times()
    tally("no space for a record", 1, 1)


def test_a_writer_that_fails_loses_nothing(tmp_path, tally):
    """The same on any machine: from the first epoch on, nothing reaches the disk."""
    cell = cells(tmp_path)[5]
    where, left_alone = setting(tmp_path / "results"), setting(tmp_path / "left alone")
    heard = carried_out(cell, where, no_fsync)
    assert "VitinitError: cannot write" in heard[-1]
    kept = list((where.root / where.study / "unfinished" / cell.spec.run_id).glob("*.ckpt"))
    assert kept
    finish(cell, where)  # from the last checkpoint
    finish(cell, left_alone)
    assert_same(left_alone, where, cell)
    tally("nothing reaches the disk", 1, 1)


@thorough
def test_a_disk_that_becomes_read_only_loses_nothing(small_disk, tmp_path, tally):
    cell = cells(tmp_path)[0]
    where, left_alone = setting(small_disk, steps=3, keep_weights=False), setting(tmp_path / "left alone")
    heard = carried_out(cell, where, read_only)
    assert "Read-only file system" in heard[-1]
    remount(small_disk, "rw")
    command = re.search(r"mv (\S+) (\S+)$", heard[-1])
    shutil.move(command[1], command[2])
    record = Store(where.root).read(where.study).done[cell.spec.run_id]
    assert record.without_times() == finish(cell, left_alone).without_times()
    tally("read-only from the first epoch on", 1, 1)


needs_permissions = pytest.mark.skipif(
    not os.geteuid() and not shutil.which("setpriv"), reason="root cannot give up its permissions here"
)


@needs_permissions
def test_a_folder_without_permission_stops_before_anything_trains(tmp_path):
    cells(tmp_path)
    results = tmp_path / "results"
    results.mkdir()
    results.chmod(0o555)
    refused = call("run", "faults.yaml", cwd=tmp_path, before=UNPRIVILEGED)
    results.chmod(0o755)
    assert refused.returncode == 2, refused.stdout
    assert "cannot write to the results folder" in refused.stderr
    assert "Permission denied" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert list(results.iterdir()) == []


@thorough
@needs_permissions
def test_a_study_that_may_not_be_listed_is_named_and_the_others_are_read(tmp_path):
    results, locked = tmp_path / "results", tmp_path / "results/locked"
    results.mkdir()
    (results / "small").symlink_to(ROOT / "results/reference/small")
    locked.mkdir()
    locked.chmod(0)
    exported = call("store", "export", "--results", "results", "--out", "out", cwd=tmp_path, before=UNPRIVILEGED)
    checked = call("store", "check", "results", cwd=tmp_path, before=UNPRIVILEGED)
    locked.chmod(0o755)
    assert (exported.returncode, exported.stderr) == (1, "")
    assert "runs.csv: 36 rows" in exported.stdout
    assert "left out: results/locked: cannot be read: Permission denied" in exported.stdout
    assert (checked.returncode, checked.stderr) == (1, "")
    assert "wrong: results/locked: cannot be read: Permission denied" in checked.stdout


@needs_permissions
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("list", "datasets"), 0),
        (("data", "get", "svhn"), 2),
        (("data", "get", "eurosat"), 2),
        (("data", "prepare", "imagenet", "--from", "."), 2),
        (("run", "images.yaml"), 2),
        (("data", "prepare", "digits"), 2),
    ],
)
def test_a_data_folder_that_may_not_be_looked_into_is_named_in_one_line(words, code, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    (tmp_path / "images.yaml").write_text(
        "title: its images are of a class\nrows: {a: {base: kaiming_uniform}}\nblocks:\n- seeds: [0]\n"
        "  datasets: ['folder:.']\n  recipe: small\n  model: {preset: vit_micro, image_size: 8, patch_size: 2}\n"
    )
    locked.chmod(0)
    done = call(*words, cwd=tmp_path, before=UNPRIVILEGED, VITINIT_DATA="locked")
    locked.chmod(0o755)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("error: ") == code // 2
    assert "Traceback" not in done.stderr
    assert "locked" in done.stdout + done.stderr
