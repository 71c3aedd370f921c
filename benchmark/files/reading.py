"""The one door for a file that may be anybody's. Imports no torch."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MIB = 2**20


class NotAFile(OSError):
    """Something else than a regular file of a sane size."""


def read(path: Path, most: int = 64 * MIB, links: bool = False) -> bytes:
    """Return the content of a regular file. A pipe or a device, which may never end, is not read.

    Args:
        path: Where it is.
        most: Bytes that it may have.
        links: Follow a link, which may lead anywhere: of what the user names, not of what lies in a study.

    Raises:
        OSError: it is no such file, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotAFile(error.errno, "a link or a socket, not a file", path) from None
        raise
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode):
            raise NotAFile(errno.EINVAL, "no regular file", path)
        if status.st_size > most:
            raise NotAFile(errno.EFBIG, f"larger than {most:,} bytes", path)
        return file.read()
