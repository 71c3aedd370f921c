"""Full disks and folders that cannot be written: a clear message, nothing lost, nothing half-written read as good."""

import errno
import os
import re
import shutil
import subprocess

import pytest

from tests.faults.harness import assert_same, cells, finish, setting, thorough
from tests.processes import FORKS, PATIENCE, call
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import Stop
from vitinit.runners.one_run.carry_out import carry_out

pytestmark = pytest.mark.long


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = f"mount -t tmpfs -o size=1m tmpfs {folder}".split()
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(f"umount -l {folder}".split(), check=True)


def _carry_out(cell, where, fault, said):
    """Carry out a run to which something happens after its first epoch; what it says goes to the queue."""

    def on_event(event):
        if isinstance(event, str):
            said.put(event)
        elif event.epoch == 1:
            fault(where)

    try:
        said.put(carry_out(cell, where, Stop(), on_event).status)
    except VitinitError as error:
        said.put(f"VitinitError: {error}")


def carried_out(cell, where, fault):
    said = FORKS.Queue()
    process = FORKS.Process(target=_carry_out, args=(cell, where, fault, said))
    process.start()
    heard = []
    while not heard or (heard[-1] not in ("done", "failed") and not heard[-1].startswith("VitinitError")):
        heard.append(said.get(timeout=PATIENCE))
    process.join()
    assert process.exitcode == 0
    return heard


def no_fsync(where):
    def fsync(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    os.fsync = fsync


def full(where):
    free = os.statvfs(where.root).f_bavail * os.statvfs(where.root).f_frsize
    (where.root / "ballast").write_bytes(b"x" * free)


def read_only(where):
    """Read-only from now on, also with a file open for writing, as after an error of the disk."""
    for options in (f"--bind {where.root}", "-o remount,bind,ro"):
        subprocess.run(f"mount {options} {where.root}".split(), check=True)


@thorough
@pytest.mark.parametrize("fault", [full, read_only])
def test_a_record_that_cannot_be_written_is_safe_elsewhere(small_disk, tmp_path, fault, tally):
    """The message names where it is, and the command that puts it in place works."""
    cell = cells(tmp_path)[0]
    where = setting(small_disk, minutes=1e6 if fault is full else 0, keep_weights=False)
    heard = carried_out(cell, where, fault)
    if fault is read_only:
        subprocess.run(["umount", str(small_disk)], check=True)
    (small_disk / "ballast").unlink(missing_ok=True)
    assert ("No space left on device" if fault is full else "Read-only file system") in heard[-1]
    contents = Store(where.root).read(where.study)
    assert (contents.done, contents.problems) == ({}, [])
    command = re.search(r"mv (\S+) (\S+)$", heard[-1])
    shutil.move(command[1], command[2])
    alone = finish(cell, setting(tmp_path / "left alone"))
    assert Store(where.root).read(where.study).done[cell.run_id].without_times() == alone.without_times()
    tally(f"no record by a disk that is {fault.__name__}", 1, 1)


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


def test_a_folder_for_temporary_files_with_too_long_a_path_is_named_in_one_line(tmp_path):
    cells(tmp_path)
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    done = call("run faults.yaml --executor local --device cpu", tmp_path, TMPDIR=str(folder))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert str(folder) in done.stderr
    assert "set TMPDIR to another" in done.stderr
