"""Claims: who is carrying out a run right now, so that two workers never carry out one run at once.

The folder of an unfinished run holds a file for each time that it was taken: `claim-1.json`, `claim-2.json`, ... The
last one counts. A process takes a run by linking a file of its own to the next number, and only where the last claim is
over. Exactly one process can do that, also on NFS and where `flock` does nothing. No number comes twice, so that a
process which was frozen takes nothing back.

A claim says who took the run and never changes. Its mtime is the heartbeat, and RELEASED once the run was let go of.

- On one machine the process decides: after `kill -9` the run can be claimed at once.
- An owner on another one counts as live until its heartbeat is STALE_S old.

`progress.json` beside it says how far the run is.
"""

import errno
import os
import platform
import re
import shutil
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from vitinit.benchmark.fields import Frozen, NotNegative, WholeNumber
from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.files.reading import read
from vitinit.benchmark.records.record import EpochRow
from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import Stop
from vitinit.slurm import jobs as slurm_jobs

CLAIM, PROGRESS = "claim-{}.json", "progress.json"
NAME = re.compile(r"claim-\d+\.json")
BEAT_S = 5.0
"""Seconds between two heartbeats."""
STALE_S = 90.0
"""An owner whose heartbeat is farther from now is gone; clocks of two machines must not differ by more."""
PROGRESS_S = 10.0
"""Seconds between two writes of the progress, at least."""
RELEASED = 1_000_000_000
"""Unix time that stands for no heartbeat: every file system has it."""
TRIES = 40
"""Attempts to claim a run: another process may be claiming it, or removing its folder, just now."""


class Owner(Frozen):
    """The process that carries out a run."""

    model_config = ConfigDict(extra="ignore")

    host: Annotated[str, Field(max_length=300)]
    machine: str
    """Identifies the running kernel and the namespace of pids."""
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    born: int = 0
    """Start of the process, in clock ticks since the kernel's."""
    job: Annotated[str, Field(pattern=r"^\d[\d_]*$")] | None = None
    """The job of a cluster that it belongs to."""
    restarts: int = 0
    """Number of times that this job had been started again."""
    job_name: str = ""
    """A cluster that was set up anew counts its jobs from 1 again: the name tells whether it is the same job."""
    source: str = ""
    """Hash of the code that it runs."""
    token: str = ""
    """Unique."""

    def describe(self) -> str:
        """Return where it runs, for people."""
        return f"job {self.job} on {self.host}" if self.job else f"host {self.host} pid {self.pid}"


UNKNOWN = Owner(host="unknown", machine="", pid=1)


class Progress(Frozen):
    """Progress of a run."""

    epoch: WholeNumber = 0
    epochs: WholeNumber = 0
    scored: str = ""
    """Last measured score of the run, in words."""
    train_loss: float | None = None
    images_per_s: NotNegative | None = None
    epoch_seconds: NotNegative | None = None
    """Time that the last epoch took."""
    notes: list[str] = Field(default_factory=list)
    """Lines that the run said so far: see `RunRecord.notes`."""

    def describe(self) -> str:
        """Return how far the run is and how long it will still take, for people."""
        parts = [f"epoch {self.epoch}/{self.epochs}", self.scored] if self.epochs else []
        if self.images_per_s:
            parts.append(f"{self.images_per_s:,.0f} images/s")
        if self.epoch_seconds is not None:
            parts.append(f"about {duration((self.epochs - self.epoch) * self.epoch_seconds)} left")
        return ", ".join(filter(None, parts))


class Taken(Exception):
    """Another process is carrying out the run; the message says which."""


def last(folder: Path) -> Owner | None:
    """Return the process that took the run last, live or not; UNKNOWN where its claim cannot be read."""
    claim = _last(folder)
    return _owner(claim) if claim else None


def live(folder: Path) -> Owner | None:
    """Return the process that is carrying out the run of this folder right now."""
    claim = _last(folder)
    if not claim:
        return None
    owner = _owner(claim)
    try:
        beat = claim.lstat().st_mtime
    except FileNotFoundError:
        return None
    except PermissionError:
        return owner
    if beat <= RELEASED:
        return None
    if owner.machine == _machine():  # its end can be seen from here
        return owner if _alive(owner) else None
    if owner.job == slurm_jobs.current() and owner.restarts < slurm_jobs.restarts():  # on another node
        return None
    return owner if abs(time.time() - beat) < STALE_S else None


def bury(folder: Path, owner: Owner) -> None:
    """Let go of a run for an owner that is known to be gone."""
    claim = _last(folder)
    if claim and _owner(claim) == owner:
        with suppress(OSError):  # of another user: its heartbeat ends by itself
            os.utime(claim, (RELEASED, RELEASED))


def progress(folder: Path, users: Collection[int] | None = None) -> Progress:
    """Return how far the run of this folder is, as far as it was written by one of these users; None: by anyone."""
    path = folder / PROGRESS
    with suppress(OSError, ValidationError):
        if users is None or path.lstat().st_uid in users:
            return Progress.model_validate_json(read(path))
    return Progress()


def checkpoints(folder: Path) -> dict[Path, int]:
    """Return the checkpoints of the run of this folder, the oldest first, and the user that each belongs to."""
    users = {}
    for path in sorted(folder.glob("step-*.ckpt")):
        with suppress(FileNotFoundError):  # another one has just taken its place
            status = path.lstat()
            if S_ISREG(status.st_mode):
                users[path] = status.st_uid
    return users


def described(folder: Path, owner: Owner) -> str:
    """Return where the run of this folder is carried out, and how far it is."""
    if owner is UNKNOWN:
        return f"somebody whose claim cannot be read: its owner says chmod -R a+rX {folder}"
    return ", ".join(filter(None, (owner.describe(), progress(folder).describe())))


def refused(folder: Path, error: OSError, what: str = "cannot write to") -> VitinitError:
    """Return the error for a folder that this user may not use, or that cannot be written."""
    mend = ""
    if isinstance(error, PermissionError):
        present = next(filter(os.path.exists, (folder, *folder.parents)))
        mend = f"; its owner lets you: umask 002; chmod -R g+rwX {present}"
    return VitinitError(f"{what} {folder}: {error.strerror or error}{mend}")


class Claim:
    """A run that this process has to itself.

    Args:
        path: of the claim.
        content: that tells it from the claim of anyone else.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self._content = path, content
        self.users = {path.lstat().st_uid, 0}
        """This user, by the number that the file system shows, and root. The run goes on from files of no other."""
        self.progress = self._told = progress(path.parent, self.users)
        self._written = -PROGRESS_S

    def lost(self) -> bool:
        """Check whether somebody else has taken the run since, or even finished it."""
        try:
            return _last(self.path.parent) != self.path or read(self.path) != self._content
        except OSError:
            return False  # that it cannot be read now does not mean that it is gone

    def report(self, row: EpochRow, epochs: int) -> Progress:
        """Say how far the run is, at once or with a later heartbeat, and return it."""
        self.progress = Progress(
            epoch=row.epoch,
            epochs=epochs,
            scored=row.scored() or self.progress.scored,  # not every epoch is evaluated
            train_loss=row.train_loss,
            images_per_s=row.images_per_s,
            epoch_seconds=row.seconds,
            notes=self.progress.notes,
        )
        self.write_progress()
        return self.progress

    def note(self, line: str) -> None:
        """Keep what the run says for its record, also where this process ends before that is written."""
        self.progress = self.progress.model_copy(update={"notes": [*self.progress.notes, line]})
        self._written = -PROGRESS_S
        self.write_progress()

    def write_progress(self) -> None:
        """Write what was reported, if it is time to."""
        if self.progress is not self._told and time.monotonic() - self._written >= PROGRESS_S:
            self._told, self._written = self.progress, time.monotonic()
            with suppress(OSError):  # only what others see of it goes stale
                write_atomically(self.path.with_name(PROGRESS), self._told.model_dump_json().encode())

    def release(self) -> None:
        """Release the claim."""
        if not self.lost():
            with suppress(OSError):
                os.utime(self.path, (RELEASED, RELEASED))

    def finish(self) -> None:
        """Remove the folder of a recorded run, checkpoints included.

        Whoever else has claimed the run meanwhile finds the record, or is told by the next heartbeat.
        """
        shutil.rmtree(self.path.parent, ignore_errors=True)


@contextmanager
def held(folder: Path, stop: Stop, source: str = "") -> Iterator[Claim]:
    """Claim a run for as long as the context lasts; a background thread keeps the heartbeat.

    When the claim is lost all the same (this process was frozen for longer than STALE_S, and another machine took the
    run over), the run is asked to stop.

    Raises:
        Taken: another process has it.
        VitinitError: the folder cannot be written.
    """
    claim = take(folder, source)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            with suppress(OSError):  # a full or vanished disk is for the run itself to report
                if claim.lost():
                    stop.request("another process has taken the run over")
                    return
                os.utime(claim.path)
                claim.write_progress()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield claim
    finally:
        over.set()
        thread.join()
        claim.release()


def take(folder: Path, source: str = "") -> Claim:
    """Claim a run.

    Raises:
        Taken: another process has it.
        VitinitError: the folder cannot be written.
    """
    owner = Owner(
        host=platform.node(),
        machine=_machine(),
        pid=os.getpid(),
        born=_born(os.getpid()) or 0,
        job=slurm_jobs.current(),
        restarts=slurm_jobs.restarts(),
        job_name=os.environ.get("SLURM_JOB_NAME", ""),
        source=source,
        token=uuid.uuid4().hex,
    )
    content, file = owner.model_dump_json().encode(), folder / f".claim-{owner.token}"
    for attempt in range(TRIES):
        time.sleep(0.001 * attempt)
        try:
            with suppress(FileNotFoundError):
                if not S_ISDIR(folder.lstat().st_mode):
                    raise VitinitError(f"{folder} is no folder of a run: remove it")
            folder.mkdir(parents=True, exist_ok=True)
            before = _last(folder)
            if other := live(folder):
                raise Taken(f"being run by {described(folder, other)}")
            path = folder / CLAIM.format(_number(before) + 1 if before else 1)
            file.write_bytes(content)
            _link(file, path)
            return Claim(path, content)
        except (FileNotFoundError, FileExistsError):  # another was faster, or has finished the run
            pass
        except OSError as error:
            raise refused(folder, error) from None
        finally:
            with suppress(OSError):
                file.unlink()
    raise Taken(f"being run by {described(folder, last(folder) or UNKNOWN)}")


def _number(claim: Path) -> int:
    return int(claim.stem.removeprefix("claim-"))


def _last(folder: Path) -> Path | None:
    """Return the last claim of a run."""
    try:
        claims = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:  # another user's, who may be at work there
        return folder / CLAIM.format(0)
    return max(claims, key=_number, default=None)


def _owner(path: Path) -> Owner:
    """Return the process that made a claim; UNKNOWN where that cannot be read."""
    try:
        return Owner.model_validate_json(read(path))
    except (OSError, ValidationError):
        return UNKNOWN


def _alive(owner: Owner) -> bool:
    """Check whether a process of this machine is there, and no other one of the same pid."""
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return _born(owner.pid) in (owner.born, None)


def _born(pid: int) -> int | None:
    """Return when a process started, -1 for one that has ended; None where the system does not say."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return -1 if state in "ZX" else int(fields[18])


def _machine() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 (no path)
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {namespace}"
    except OSError:
        return platform.node()


def _link(source: Path, target: Path) -> None:
    """Link a file to a name that must be free.

    Raises:
        FileExistsError: it is not.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        if not source.samefile(target):  # a network file system may have lost its answer to us
            raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        with target.open("xb") as file:  # there are no links, as on exFAT
            file.write(source.read_bytes())
