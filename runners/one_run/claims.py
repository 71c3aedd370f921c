"""Claims: who is carrying out a run right now, so that two launchers never carry out one run twice.

The folder of an unfinished run holds two files for it. Its owner keeps a lock (flock) on `lock`, which the kernel
releases when its process ends, however that ends. In `claim.json` the owner says who it is; it touches that file every
few seconds.

- On one machine the lock alone decides: after `kill -9` the run can be claimed at once.
- Locks need not reach other machines. An owner on another one counts as live until its heartbeat is STALE_S old.
- Where the file system has no locks, the heartbeat decides everywhere. Two processes that claim a run within the same
  moment then both begin it; the one whose claim was overwritten notices with its next heartbeat, and stops.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.stop import Stop
from vitinit.slurm import jobs as slurm_jobs

LOCK, CLAIM = "lock", "claim.json"
BEAT_S = 5.0
"""Seconds between two heartbeats."""
STALE_S = 90.0
"""An owner whose heartbeat is older is gone; clocks of two machines must not differ by more."""
TRIES = 40
"""Attempts to claim a run: another process may be looking at its lock, or removing its folder, just now."""


class Owner(Frozen):
    """The process that carries out a run, and how far it has come."""

    host: str
    machine: str
    """Identifies the running kernel, within which locks are known to work."""
    pid: int
    since: float
    """Unix time at which the run was claimed."""
    job: str | None = None
    """The job of a cluster that it belongs to."""
    released: bool = False
    epoch: int = 0
    epochs: int = 0
    scored: str = ""
    """Last measured score of the run, in words."""
    epoch_seconds: float | None = None
    """Time that the last epoch took."""

    def describe(self) -> str:
        """Return where it runs, how far it is and how long it will still take, for people."""
        parts = [f"job {self.job} on {self.host}" if self.job else f"host {self.host} pid {self.pid}"]
        if self.epochs:
            parts.append(f"epoch {self.epoch}/{self.epochs}")
        if self.scored:
            parts.append(self.scored)
        if self.epoch_seconds is not None:
            parts.append(f"about {duration((self.epochs - self.epoch) * self.epoch_seconds)} left")
        return ", ".join(parts)


UNKNOWN = Owner(host="unknown", machine="", pid=0, since=0.0)


class Taken(Exception):
    """Another process is carrying out the run; the message says which."""


def folder(root: Path, study: str, run_id: str) -> Path:
    """Return where an unfinished run keeps its claim and checkpoints."""
    return root / study / "unfinished" / run_id


def last(folder: Path) -> Owner | None:
    """Return the last process that claimed the run, live or not; UNKNOWN where its claim cannot be read."""
    try:
        return Owner.model_validate_json((folder / CLAIM).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        return UNKNOWN


def live(folder: Path) -> Owner | None:
    """Return the process that is carrying out the run of this folder right now."""
    owner = last(folder)
    if not owner or owner.released:
        return None
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:  # it is not there, or not to be read: the heartbeat decides
        return _heard(folder, owner, locks=True)
    try:
        free = _locked(lock, fcntl.LOCK_SH)
    finally:
        os.close(lock)
    return owner if free is False else _heard(folder, owner, locks=bool(free))


@contextmanager
def held(folder: Path, stop: Stop) -> Iterator[Claim]:
    """Claim a run for as long as the context lasts; a background thread keeps the heartbeat.

    When the claim is lost all the same (this process was frozen for longer than STALE_S, and another machine took the
    run over), the run is asked to stop.

    Raises:
        Taken: another process has it.
        VitinitError: the folder cannot be written.
    """
    claim = _take(folder)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            with suppress(OSError):  # a full or vanished disk is for the run itself to report
                if claim.lost():
                    stop.request("another process has taken the run over")
                    return
                os.utime(claim.path)

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield claim
    finally:
        over.set()
        thread.join()
        claim.release()


class Claim:
    """A run that this process has to itself.

    Args:
        folder: of the run.
        lock: the descriptor that holds the lock.
    """

    def __init__(self, folder: Path, lock: int) -> None:
        self.path, self._lock = folder / CLAIM, lock
        self.owner = Owner(
            host=platform.node(), machine=_machine(), pid=os.getpid(), since=time.time(), job=slurm_jobs.current()
        )
        self._write()

    def lost(self) -> bool:
        """Check whether somebody else has claimed the run since, or even finished it."""
        try:
            found = Owner.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return True
        except (OSError, ValidationError):
            return False  # that it cannot be read now does not mean that it is gone
        mine = self.owner
        return (found.machine, found.pid, found.since) != (mine.machine, mine.pid, mine.since)

    def say(self, **news: object) -> None:
        """Say how far the run is, in fields of `Owner`."""
        self.owner = self.owner.model_copy(update=news)
        if not self.lost():
            with suppress(OSError):  # only what others see of it goes stale
                self._write()

    def release(self) -> None:
        """Let go of the run: whoever comes next may claim it."""
        if self._lock >= 0:
            self.say(released=True)
            os.close(self._lock)
            self._lock = -1

    def finish(self) -> None:
        """Remove the folder of a recorded run, checkpoints included.

        Whoever else has claimed the run meanwhile finds the record, or is told by the next heartbeat.
        """
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def _write(self) -> None:
        write_atomically(self.path, self.owner.model_dump_json().encode())


def _take(folder: Path) -> Claim:
    for attempt in range(TRIES):
        time.sleep(0.001 * attempt)
        lock = -1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            free = _locked(lock, fcntl.LOCK_EX)
            if free is not False and os.path.samestat(os.fstat(lock), (folder / LOCK).stat()):
                owner = last(folder)
                if owner and not owner.released and (other := _heard(folder, owner, locks=bool(free))):
                    raise Taken(f"being run by {other.describe()}")
                claim, lock = Claim(folder, lock), -1
                return claim
        except (FileNotFoundError, FileExistsError):  # the run was finished and its folder is removed just now
            pass
        except OSError as error:
            raise VitinitError(f"cannot write to {folder}: {error.strerror or error}") from None
        finally:
            if lock >= 0:
                os.close(lock)
    raise Taken(f"being run by {(last(folder) or UNKNOWN).describe()}")


def _locked(descriptor: int, how: int) -> bool | None:
    """Lock a file if it is free; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _heard(folder: Path, owner: Owner, locks: bool) -> Owner | None:
    """Return an owner that has no lock on the file and lives all the same, by its heartbeat."""
    if locks and owner.machine == _machine():
        return None
    try:
        silent_s = time.time() - (folder / CLAIM).stat().st_mtime
    except OSError:
        return owner
    return owner if silent_s < STALE_S else None


def _machine() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()
