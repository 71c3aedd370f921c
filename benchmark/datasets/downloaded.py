"""Official files in the data folder, known by their md5 and downloaded with torchvision; datasets read as arrays."""

from __future__ import annotations

import socket
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vitinit.benchmark.datasets.dataset import Arrays, InMemory, Report, silent
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, os_errors, plain

TIMEOUT_S = 10.0
"""Seconds a server may stay silent before a download is given up."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OfficialFiles:
    """Files in the data folder that are the same for everybody.

    Attributes:
        name: The dataset's.
        files: md5 of each file by its path in the data folder, which is torchvision's.
    """

    name: str
    files: Mapping[str, str]
    downloaded: ClassVar[bool] = True

    def missing(self, data_dir: Path) -> list[str]:
        """Its files that are not there."""
        return [file for file in self.files if not (data_dir / file).is_file()]

    def check(self, data_dir: Path, files: Iterable[str]) -> None:
        """Refuses a file that is damaged or cannot be read, before anything in it is unpickled or unpacked."""
        from torchvision.datasets.utils import calculate_md5

        for path, md5 in ((data_dir / file, self.files[file]) for file in files):
            with os_errors(f"{path} cannot be read"):
                found = calculate_md5(path)
            if found != md5:
                raise VitinitError(
                    f"{path} is damaged: md5 {found} ({path.stat().st_size} bytes), expected md5 {md5}; "
                    f"move it away and run 'vitinit data get {self.name}'"
                )


@dataclass(frozen=True, eq=False, kw_only=True)
class Downloaded(OfficialFiles, InMemory):
    """Implement `torchvision` and `arrays`."""

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

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Names the files that are not there."""
        missing = self.missing(data_dir)
        if not missing:
            return None
        return f"{self.name} is not here: put {listed(missing)} into {data_dir}, or run 'vitinit data get {self.name}'"

    def download(self, data_dir: Path, report: Report = silent) -> None:
        """Downloads what is missing, and checks the md5 of what is there."""
        missing = self.missing(data_dir)
        self.check(data_dir, [file for file in self.files if file not in missing])
        if not missing:
            return
        with downloading(self.name, missing, data_dir):
            data_dir.mkdir(parents=True, exist_ok=True)
            # An interrupted download must leave no half a file under a real name.
            with tempfile.TemporaryDirectory(prefix=".download-", dir=data_dir) as scratch:
                self.torchvision(Path(scratch), download=True)
                for file in missing:
                    (data_dir / file).parent.mkdir(exist_ok=True)
                    (Path(scratch) / file).replace(data_dir / file)


@contextmanager
def downloading(name: str, missing: list[str], data_dir: Path) -> Iterator[None]:
    """Bound the silence of a server while torchvision downloads and unpacks; whatever fails is one line.

    Raises:
        VitinitError: it says which missing files to put where.
    """
    timeout_before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_S)
    try:
        yield
    except Exception as error:  # of many types: servers and archives are somebody else's
        said = plain(str(error)) or type(error).__name__
        if not missing:
            raise VitinitError(f"cannot read the archives of {name} in {data_dir}: {said}") from error
        raise VitinitError(f"cannot download {name} ({said}); put {listed(missing)} into {data_dir}") from error
    finally:
        socket.setdefaulttimeout(timeout_before)


def listed(files: list[str]) -> str:
    """File names as words: a folder they share is said once."""
    folder = Path(files[0]).parent
    if folder == Path() or len(files) == 1:
        return ", ".join(files)
    return f"{folder}/ with {', '.join(Path(file).name for file in files)}"
