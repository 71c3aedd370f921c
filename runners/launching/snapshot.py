"""The code as it is now, put aside: what queued jobs run, whatever is edited meanwhile. Imports no torch."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import uuid
from pathlib import Path

from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.environment import IMPORTED_FROM

PACKAGES = ("initializers", "benchmark", "slurm", "runners")
"""Packages of `vitinit` that a job imports. Plug-ins and libraries are imported from where they are."""


def take(folder: Path) -> Path:
    """Copy the code into `folder/<hash of its content>`, unless that is there already; a damaged one is renamed.

    Returns:
        The copy: a folder to import from, that holds `vitinit`.

    Raises:
        VitinitError: it cannot be written.
    """
    digest, contents = hashlib.sha256(), _contents(IMPORTED_FROM)
    for name, content in contents.items():
        digest.update(f"{name.as_posix()}\0{len(content)}\0".encode() + content)
    copy = folder / digest.hexdigest()[:16]
    try:
        if copy.is_dir():
            if _contents(copy) == contents:
                return copy
            copy.rename(copy.with_name(f"{copy.name}.damaged-{uuid.uuid4().hex[:8]}"))
        folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".code-", dir=folder))
        temporary.chmod(0o755)
        for name, content in contents.items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).write_bytes(content)
        try:
            temporary.rename(copy)
        except OSError:
            if not copy.is_dir():
                raise
            shutil.rmtree(temporary)  # somebody else has just put the same there
    except OSError as error:
        with contextlib.suppress(UnboundLocalError):
            shutil.rmtree(temporary, ignore_errors=True)
        raise VitinitError(f"cannot put the code aside in {folder}: {error.strerror or error}") from None
    return copy


def _contents(root: Path) -> dict[Path, bytes]:
    """Read the files of `vitinit` in a folder, by their place in it, sorted."""
    files = sorted(
        path
        for package in PACKAGES
        for path in (root / "vitinit" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    files.append(root / "vitinit" / "__init__.py")
    return {path.relative_to(root): path.read_bytes() for path in files}
