"""The one door for a file or folder that may be anybody's. Imports no torch."""

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from vitinit.initializers.errors import VitinitError

MIB = 2**20


def regular(path: Path, most: int, links: bool = False) -> Path:
    """Return the path of a regular file. A pipe or a device, which may never end, is not read.

    Args:
        path: Where it is.
        most: Bytes that it may have.
        links: Follow a link, which may lead anywhere: of what the user names, not of what lies in a study.

    Raises:
        OSError: it is no such file.
    """
    status = path.stat() if links else path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise OSError(errno.EINVAL, f"no regular file of at most {most:,} bytes", path)
    return path


def read(path: Path, most: int = 64 * MIB, links: bool = False) -> bytes:
    """Return the content of a `regular` file."""
    return regular(path, most, links).read_bytes()


def refuse_packed(file: Path | IO[bytes]) -> None:
    """Refuse a zip file whose content takes more memory than the file: a few bytes may become gigabytes.

    Raises:
        ValueError: it is such a file.
    """
    with ZipFile(file) as members:
        if any(member.compress_size < member.file_size for member in members.infolist()):
            raise ValueError("packed")


def sha256(path: Path, most: int) -> str:
    """Return the sha256 of a `regular` file, of which a block is in memory at a time."""
    digest = hashlib.sha256()
    with regular(path, most).open("rb") as file:
        while block := file.read(MIB):
            digest.update(block)
    return digest.hexdigest()


def folder(path: Path | None) -> Path | None:
    """Refuse a file or device where a folder is to be; one that is not there yet is made when something is written."""
    for place in (path, *path.parents) if path else ():
        # neither raises where a folder may not be entered
        if os.path.exists(place) and not os.path.isdir(place):  # noqa: PTH110, PTH112
            raise VitinitError(f"{place} is no folder, and one is needed: --results DIR, --data-dir DIR")
    return path
