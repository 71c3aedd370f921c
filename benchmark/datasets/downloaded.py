"""The kind of dataset that is files in the data folder, known by their md5, and downloaded with torchvision."""

from __future__ import annotations

import hashlib
import socket
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, ClassVar

from vitinit.benchmark.datasets.dataset import Arrays, InMemory, Report, silent
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

TIMEOUT_S = 10.0
"""Seconds a server may stay silent before a download is given up."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Downloaded(InMemory):
    """Implement `torchvision` and `arrays`.

    Attributes:
        files: md5 of each file by its path in the data folder.
    """

    files: Mapping[str, str]
    downloaded: ClassVar[bool] = True

    @abstractmethod
    def torchvision(self, root: Path, download: bool) -> tuple[Any, Any]:
        """The training and the test dataset of torchvision in this folder."""

    @abstractmethod
    def arrays(self, train: Any, test: Any) -> tuple[Arrays, Arrays, tuple[str, ...]]:
        """As `read`, from the datasets of torchvision."""

    def read(self, data_dir: Path) -> tuple[Arrays, Arrays, tuple[str, ...]]:
        """Both splits and the classes, from files whose md5 is right."""
        self.check(data_dir, self.files)
        return self.arrays(*self.torchvision(data_dir, download=False))

    def missing(self, data_dir: Path) -> list[str]:
        """Its files that are not there."""
        return [file for file in self.files if not (data_dir / file).is_file()]

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Names the files that are not there."""
        missing = self.missing(data_dir)
        if not missing:
            return None
        return f"{self.name} is not here: put {listed(missing)} into {data_dir}, or run 'vitinit data get {self.name}'"

    def check(self, data_dir: Path, files: Iterable[str]) -> None:
        """Refuses a file that is damaged or cannot be read, before anything in it is unpickled."""
        for path, md5 in ((data_dir / file, self.files[file]) for file in files):
            try:
                found = md5_of(path)
            except OSError as error:
                raise VitinitError(f"{path} cannot be read: {error.strerror or error}") from error
            if found != md5:
                raise VitinitError(
                    f"{path} is damaged: md5 {found} ({path.stat().st_size} bytes), expected md5 {md5}; "
                    f"move it away and run 'vitinit data get {self.name}'"
                )

    def download(self, data_dir: Path, report: Report = silent) -> None:
        """Downloads what is missing, and checks the md5 of what is there."""
        missing = self.missing(data_dir)
        self.check(data_dir, [file for file in self.files if file not in missing])
        if not missing:
            return
        timeout_before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(TIMEOUT_S)
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            # An interrupted download must leave no half a file under a real name.
            with tempfile.TemporaryDirectory(prefix=".download-", dir=data_dir) as scratch:
                self.torchvision(Path(scratch), download=True)
                for file in missing:
                    (data_dir / file).parent.mkdir(exist_ok=True)
                    (Path(scratch) / file).replace(data_dir / file)
        except (OSError, RuntimeError, HTTPException, EOFError) as error:
            message = " ".join(str(error).split()) or type(error).__name__
            raise VitinitError(
                f"cannot download {self.name} ({message}); put {listed(missing)} into {data_dir}"
            ) from error
        finally:
            socket.setdefaulttimeout(timeout_before)


def md5_of(path: Path) -> str:
    """Of a file."""
    with path.open("rb") as stream:
        digest = hashlib.md5(usedforsecurity=False)
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def listed(files: list[str]) -> str:
    """File names as words: a folder they share is said once."""
    folder = Path(files[0]).parent
    if folder == Path() or len(files) == 1:
        return ", ".join(files)
    return f"{folder}/ with {', '.join(Path(file).name for file in files)}"
