"""Claims: who is carrying out a run right now, so that two launchers never carry out one run twice.

A claim is a numbered file `claim-0001.json` in the folder of an unfinished run; the highest number counts. It is made
with O_EXCL, and its owner touches it every few seconds. When the owner has released it, or is gone, the next number can
be claimed: of any number of processes that try, exactly one succeeds. Claims are not deleted while the run is
unfinished: with the numbers starting anew, a process that had read the old claim could overlook a new owner.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from vitinit.benchmark.fields import Frozen
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.stop import Stop
from vitinit.runners.terminal.duration import duration
from vitinit.slurm import jobs as slurm_jobs

BEAT_S = 5.0
"""Seconds between two heartbeats."""
TRIES = 100
"""How often a claim is tried while others finish and remove the folder under it."""
STALE_S = 90.0
"""After so many seconds without a heartbeat an owner on another machine counts as gone."""


class Owner(Frozen):
    """The process that carries out a run, and how far it has come."""

    host: str
    machine: str
    """Tells apart machines, boots and containers: only within one of them does a pid mean something."""
    pid: int
    process_started: str
    since: float
    """Unix time at which the run was claimed."""
    job: str | None = None
    """The job of a cluster that it belongs to."""
    restart: int = 0
    """How often that job had been requeued."""
    released: bool = False
    epoch: int = 0
    epochs: int = 0
    scored: str = ""
    """What the run was measured at last, for people."""
    epoch_seconds: float | None = None
    """Time that the last epoch took."""

    def describe(self) -> str:
        """Where it runs, how far it is and how long it will still take, for people."""
        text = f"job {self.job} on {self.host}" if self.job else f"host {self.host} pid {self.pid}"
        if self.epochs:
            text += f", epoch {self.epoch}/{self.epochs}"
        if self.scored:
            text += f", {self.scored}"
        if self.epoch_seconds is not None:
            text += f", about {duration((self.epochs - self.epoch) * self.epoch_seconds)} left"
        return text


UNKNOWN = Owner(host="unknown", machine="", pid=0, process_started="", since=0.0)


class Taken(Exception):
    """Another process is carrying out the run; the message says which."""


def folder(root: Path, study: str, run_id: str) -> Path:
    """Where an unfinished run keeps its claims and checkpoints."""
    return root / study / "unfinished" / run_id


def live(folder: Path, exact: bool = False) -> Owner | None:
    """The process that is carrying out the run of this folder right now, or None.

    `exact`: by the clock of the file server, which claiming goes by; that writes a file for a moment.
    """
    try:
        if not (number := _latest(folder)):
            return None
        return _owner_if_live(_path(folder, number), _clock_of_claiming(folder) if exact else time.time())
    except OSError:  # a folder that may not be read is somebody else's
        return UNKNOWN


def beating(folder: Path) -> bool:
    """Whether there is a live owner that gave a sign of life lately, exactly; one that is silent may be gone.

    Of a folder, or a claim, that may not be read nobody will know more later: it counts as beating.
    """
    try:
        owner, path = live(folder, exact=True), _path(folder, _latest(folder))
        silent_for = _clock_of_claiming(folder) - path.stat().st_mtime
        if owner is UNKNOWN and silent_for >= STALE_S:
            return True
        return owner is not None and (_is_here(owner) or silent_for < 4 * BEAT_S)
    except OSError:
        return live(folder) is UNKNOWN


def last(folder: Path) -> Owner | None:
    """Who claimed the run of this folder last, live or not."""
    try:
        return Owner.model_validate_json(_path(folder, _latest(folder)).read_bytes())
    except (OSError, ValidationError):
        return None


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
    """A run that this process has to itself."""

    def __init__(self, path: Path, owner: Owner) -> None:
        self.path, self.owner = path, owner
        self._finished = False

    def lost(self) -> bool:
        """Whether somebody else has claimed the run since, or even finished it."""
        try:
            found = Owner.model_validate_json(self.path.read_bytes())
            same = (found.machine, found.pid, found.since) == (self.owner.machine, self.owner.pid, self.owner.since)
            return not same or _latest(self.path.parent) > int(self.path.stem.removeprefix("claim-"))
        except FileNotFoundError:
            return True
        except (OSError, ValidationError):
            return False  # that it cannot be read now does not mean that it is gone

    def update(self, epoch: int, epochs: int, scored: str, seconds: float) -> None:
        """Say how far the run is, and how long its last epoch took; an epoch without a score leaves the last one."""
        latest = scored or self.owner.scored
        news = {"epoch": epoch, "epochs": epochs, "scored": latest, "epoch_seconds": seconds}
        self.owner = self.owner.model_copy(update=news)
        if not self.lost():
            self._rewrite()

    def release(self) -> None:
        """Let go of the run: whoever comes next may claim it."""
        if not self._finished and not self.lost():
            self.owner = self.owner.model_copy(update={"released": True})
            self._rewrite()

    def finish(self) -> None:
        """The run is recorded: remove its folder, checkpoints included."""
        self._finished = True
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def _rewrite(self) -> None:
        temporary = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.tmp")
        with suppress(OSError):  # only what others see of it goes stale
            temporary.write_text(self.owner.model_dump_json())
            temporary.replace(self.path)
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _take(folder: Path) -> Claim:
    pid = os.getpid()
    owner = Owner(
        host=platform.node(),
        machine=_machine(),
        pid=pid,
        process_started=_process_started(pid) or "",
        since=time.time(),
        job=slurm_jobs.current(),
        restart=slurm_jobs.restarts(),
    )
    for attempt in range(TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            number = _latest(folder)
            if number and (other := _owner_if_live(_path(folder, number), _file_server_time(folder))):
                raise Taken(f"being run by {other.describe()}")
            path = _path(folder, number + 1)
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except (FileExistsError, FileNotFoundError) as error:
            # somebody was faster, or the run was finished and its folder removed meanwhile: look again
            if attempt == TRIES - 1:
                raise VitinitError(f"cannot write to {folder}: {error.strerror}") from None
            time.sleep(0.01 * attempt)
            continue
        except OSError as error:
            raise VitinitError(f"cannot write to {folder}: {error.strerror or error}") from None
        try:
            with os.fdopen(file, "w") as stream:
                stream.write(owner.model_dump_json())
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            raise VitinitError(f"cannot write to {folder}: {error.strerror or error}") from None
        return Claim(path, owner)
    raise AssertionError("the last try returns or raises")


def _path(folder: Path, number: int) -> Path:
    return folder / f"claim-{number:04d}.json"


def _latest(folder: Path) -> int:
    """The highest number of a claim, 0 if there is none."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return 0
    numbers = (name.removeprefix("claim-").removesuffix(".json") for name in names if name.startswith("claim-"))
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _owner_if_live(path: Path, now: float) -> Owner | None:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return UNKNOWN
        owner = Owner.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:  # somebody is writing it at this moment, or was killed while writing it
        owner = UNKNOWN
    except OSError:
        return UNKNOWN
    if owner.released or (owner.job and owner.job == slurm_jobs.current() and owner.restart < slurm_jobs.restarts()):
        return None  # of its own job the cluster has ended what ran before it was requeued
    if owner.machine == _machine() and owner.process_started and not _hidden(owner.pid):
        return owner if _is_here(owner) else None
    return owner if now - found.st_mtime < STALE_S else None


def _is_here(owner: Owner) -> bool:
    return owner.machine == _machine() and _process_started(owner.pid) == owner.process_started


def _hidden(pid: int) -> bool:
    """Whether there is such a process and /proc does not show it, as that of another user may be."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return _process_started(pid) is None
    except (OSError, OverflowError):
        return False
    return False


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{platform.node()} {boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{platform.node()} {uuid.getnode()}"


def _process_started(pid: int) -> str | None:
    """Start time of a living process in clock ticks; None if there is none, or where /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _clock_of_claiming(folder: Path) -> float:
    try:
        return _file_server_time(folder)
    except OSError:  # where nothing can be written, claiming says so
        return time.time()


def _file_server_time(folder: Path) -> float:
    """Now, by the clock that also stamps the heartbeats: that of a network file system may be another than ours."""
    probe = folder / f".now.{uuid.uuid4().hex}.tmp"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
