"""The code as it is now, put aside: what queued jobs run, whatever is edited meanwhile. Imports no torch."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from pathlib import Path

from initializers.errors import VitinitError
from runners.basics.environment import ROOT

PACKAGES = ("initializers", "benchmark", "slurm", "runners")
"""What a job imports of this project. Plug-ins from elsewhere, and libraries, are imported from where they are."""


def take(folder: Path) -> Path:
    """Copy the code into `folder/<hash of its content>`, unless that is there already.

    Returns:
        The copy: a folder to import from, that holds the packages.

    Raises:
        VitinitError: it cannot be written.
    """
    files = sorted(
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    digest = hashlib.sha256()
    contents = {path.relative_to(ROOT): path.read_bytes() for path in files}
    for name, content in contents.items():
        digest.update(f"{name.as_posix()}\0{len(content)}\0".encode() + content)
    copy = folder / digest.hexdigest()[:16]
    if copy.is_dir():
        return copy
    try:
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
