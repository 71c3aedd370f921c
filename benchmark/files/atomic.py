"""Writing a file so that it is there whole or not at all. Imports nothing of this project, and no torch."""

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Put `content` at `path`, whole or not at all, whatever happens in between.

    The bytes go to a temporary file in the same folder (its name, `.<name>.<pid>.<hex>.tmp`, is this writer's own),
    reach the disk, and are moved into place; then the folder's entry reaches the disk. On any error the temporary file
    is removed and what was at `path` stays as it was. Only a killed process leaves a temporary file behind.

    Raises:
        OSError: the folder is missing or cannot be written, the disk is full, or it could not be synced.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_with_folder(path: Path, content: bytes | memoryview) -> None:
    """Write atomically into a folder that is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes that use this from a file while it is read and written anew; on a network file system, too.

    The lock is a file beside it. One that stays the same for ten seconds is that of a process that was killed.
    """
    lock, first_seen = path.with_name(f".{path.name}.lock"), dict[int, float]()
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            lock.touch(exist_ok=False)
            break
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                now = time.monotonic()
                if now - first_seen.setdefault(lock.stat().st_mtime_ns, now) > 10:
                    lock.unlink()
            time.sleep(0.02)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Bring the entries of a folder to the disk: a rename is safe from a power cut only after this."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)
