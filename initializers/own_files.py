"""Files of one's own: a class in a Python file, as a grid names it, identified by the file's content. Imports no torch.

A grid says `my_method.py:Whiten`, relative to itself. A spec holds `my_method.py:Whiten@` and 16 hex digits of the
sha256 of the file: an edited file is another run, and the folder that it lies in changes nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from vitinit.initializers.errors import BrokenFile, VitinitError, cause, os_errors, unknown_name
from vitinit.initializers.foreign import contained
from vitinit.initializers.plugins import FOLDERS, look_into_own_folders

PREFIX = "vitinit_own_file_"
"""Prefix of the names of such modules in this process."""
IN_A_GRID = re.compile(r"(?P<path>.+\.py):(?P<attribute>\w+)(@(?P<digest>[0-9a-f]{16}))?", re.DOTALL)
PINNED = re.compile(r"(?P<file>[^/\\]+\.py):(?P<attribute>\w+)@(?P<digest>[0-9a-f]{16})")


def in_a_file(name: str) -> bool:
    """Return True for `path/to/file.py:NAME`, with or without the digest."""
    return IN_A_GRID.fullmatch(name) is not None


def is_pinned(name: str) -> bool:
    """Return True for a name as a spec holds it."""
    return PINNED.fullmatch(name) is not None


def pinned(name: str, folder: Path) -> str:
    """Return the name with the file's content, from `path/to/file.py:NAME`; any other name stays as it is.

    The file's folder is remembered, also for processes that are started.

    Args:
        name: as a grid has it.
        folder: that relative paths begin in.

    Raises:
        VitinitError: there is no such file, nothing in it has this name, or its content is not the one that is named.
    """
    match = IN_A_GRID.fullmatch(name)
    if not match:
        if re.search(r"\.py(:|$)", name):
            raise VitinitError(f"{name!r}: write path/to/file.py:NAME")
        return name
    file = (folder / match["path"]).absolute()
    with os_errors(f"cannot read {file}"):
        content = file.read_bytes()
    text = content.decode("utf-8", errors="replace")
    if not re.search(rf"\b{re.escape(match['attribute'])}\b", text):
        defined = re.findall(r"^(?:class|def) (\w+)|^(\w+) *=", text, re.MULTILINE)
        raise unknown_name(f"name in {match['path']}", match["attribute"], (one or other for one, other in defined))
    digest = _digest(content)
    if match["digest"] not in (None, digest):
        raise VitinitError(f"{name}: {file} has another content now ({digest}); leave @{match['digest']} out to use it")
    before = filter(None, os.environ.get(FOLDERS, "").split(os.pathsep))
    os.environ[FOLDERS] = os.pathsep.join(dict.fromkeys([str(file.parent), *before]))
    return f"{file.name}:{match['attribute']}@{digest}"


def load(name: str) -> Any:
    """Return what a name as a spec holds it stands for.

    Raises:
        VitinitError: no file with this content is here, or it cannot be imported, or has no such name.
    """
    match = PINNED.fullmatch(name)
    assert match, name
    module = _module(match["file"], match["digest"])
    if not hasattr(module, match["attribute"]):
        raise unknown_name(f"name in {match['file']}", match["attribute"], (n for n in vars(module) if n[0] != "_"))
    return getattr(module, match["attribute"])


def same_file(one: str, other: str) -> bool:
    """Return True where two modules are a file of one's own before and after it was edited."""
    return one.startswith(PREFIX) and one.rpartition("_")[0] == other.rpartition("_")[0]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _module(file: str, digest: str) -> ModuleType:
    called = f"{PREFIX}{re.sub(r'[^0-9A-Za-z]', '_', file)}_{digest}"
    if called in sys.modules:
        return sys.modules[called]
    folders = [*filter(None, os.environ.get(FOLDERS, "").split(os.pathsep)), str(Path.cwd())]
    for folder in dict.fromkeys(folders):
        path = Path(folder) / file
        if path.is_file() and _digest(path.read_bytes()) == digest:
            return import_file(path, called)
    raise VitinitError(
        f"there is no {file} with the content that is named ({digest}); it was looked for in {', '.join(folders)}; "
        f"{FOLDERS}=FOLDER says where it is"
    )


def import_file(path: Path, called: str) -> ModuleType:
    """Import a file as a module of this name.

    Raises:
        BrokenFile: it raises an error.
    """
    look_into_own_folders()  # for what it imports from beside it
    found = importlib.util.spec_from_file_location(called, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[called] = module
    try:
        with contained(path.name):
            found.loader.exec_module(module)
    except Exception as error:  # a file under construction may raise anything while it is imported
        del sys.modules[called]
        raise BrokenFile(f"{path} cannot be imported: {cause(error)}") from error
    return module
