"""Reading archives from somebody else. Nothing is unpacked: no name in an archive becomes a path on this machine."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from vitinit.initializers.errors import VitinitError, plain

MOST_BYTES = 2**28
"""Of one file of an archive that is read; the largest of the known datasets has 221 MB."""


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    size: int
    read: Callable[[], bytes]
    """Its contents. Of a tar, only until the next member is asked for."""


def members(path: Path) -> Iterator[Member]:
    """The files of a .zip or a (compressed) .tar, in their order; any other file is its own and only member.

    Folders, links and devices are passed over.

    Raises:
        VitinitError: the archive is damaged, or a name in it leads out of it.
    """
    if path.suffix == ".zip":
        found = _zipped(path)
    elif ".tar" in path.suffixes or path.suffix == ".tgz":
        found = _tarred(path)
    else:
        found = iter([Member(path.name, path.stat().st_size, path.read_bytes)])
    while True:
        with _readable(path):
            member = next(found, None)
        if member is None:
            return
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise VitinitError(f"{path} holds {plain(member.name, 100)!r}, a name that leads out of it")
        yield member._replace(name=str(name), read=partial(_read, member, path))


def _zipped(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                yield Member(info.filename, info.file_size, partial(archive.read, info))


def _tarred(path: Path) -> Iterator[Member]:
    with tarfile.open(path, "r|*") as archive:
        for entry in archive:
            if entry.isreg():
                file = archive.extractfile(entry)
                assert file, "it is a regular file"
                yield Member(entry.name, entry.size, file.read)


def _read(member: Member, path: Path) -> bytes:
    """Its contents, unless they are more than any image or label file has."""
    if member.size > MOST_BYTES:
        raise VitinitError(f"{path}: {plain(member.name, 100)!r} has {member.size:,} bytes, more than is read")
    with _readable(path):
        content = member.read()
        if len(content) != member.size:
            raise EOFError(f"{member.name} ends after {len(content):,} of {member.size:,} bytes")
    return content


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError) as error:
        raise VitinitError(f"{path} cannot be read as an archive: {plain(str(error), 200)}") from error
