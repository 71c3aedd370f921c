"""The one door for a file that may be anybody's. Imports no torch."""

import errno
import hashlib
import stat
from pathlib import Path

MIB = 2**20


def read(path: Path, most: int = 64 * MIB, links: bool = False) -> bytes:
    """Return the content of a regular file. A pipe or a device, which may never end, is not read.

    Args:
        path: Where it is.
        most: Bytes that it may have.
        links: Follow a link, which may lead anywhere: of what the user names, not of what lies in a study.

    Raises:
        OSError: it is no such file, or cannot be read.
    """
    status = path.stat() if links else path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise OSError(errno.EINVAL, f"no regular file of at most {most:,} bytes", path)
    return path.read_bytes()


def sha256(path: Path) -> str:
    """Return the sha256 of a regular file of any size, of which a block is in memory at a time.

    Raises:
        OSError: it is no such file, or cannot be read.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "no regular file", path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(MIB):
            digest.update(block)
    return digest.hexdigest()
