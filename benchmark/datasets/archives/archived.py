"""The kind of dataset that is official archives of images: torchvision downloads, checks and unpacks them.

`vitinit data get NAME` packs the images into what `benchmark/image_files/packed.py` reads, and removes what it has
unpacked. From then on it is a packed dataset as ImageNet is.
"""

from __future__ import annotations

import shutil
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vitinit.benchmark.datasets.dataset import Report, silent
from vitinit.benchmark.datasets.downloaded import OfficialFiles, downloading, listed
from vitinit.benchmark.datasets.imagenet import IMAGENET
from vitinit.benchmark.datasets.packed import Packed
from vitinit.benchmark.image_files.layout import is_packed
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, plain


class Listing(NamedTuple):
    """Names of the classes, and file and label of every image, in the dataset's own order."""

    classes: tuple[str, ...]
    train: list[tuple[Path, int]]
    test: list[tuple[Path, int]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Archived(OfficialFiles, Packed):
    """Implement `listing`.

    Attributes:
        archive_bytes: Size of its archives, about.
        statistics: ImageNet's, as is customary for photographs.
    """

    archive_bytes: int
    statistics: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET.statistics

    @abstractmethod
    def listing(self, root: Path) -> Listing:
        """Let torchvision download what is missing in a folder, check and unpack it; list the unpacked images.

        Raises:
            Exception: It failed: an error of any type becomes one line.
        """

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Says how to get it."""
        if is_packed(data_dir / self.name):
            return None
        return (
            f"{self.name} is not here: run 'vitinit data get {self.name}', which downloads "
            f"{listed(list(self.files))} or takes what is in {data_dir}"
        )

    def download(self, data_dir: Path, report: Report = silent) -> None:
        """Checks what is there, downloads what is missing, and packs; what it downloaded is then removed.

        Archives that are there are linked into the folder that torchvision works in, and stay as they are.
        """
        from vitinit.benchmark.image_files.packing import check_room, refuse_existing, scratch_beside

        folder, work = data_dir / self.name, data_dir / f"{self.name}.downloads"
        if is_packed(folder):
            return
        try:
            refuse_existing(folder)
            data_dir.mkdir(parents=True, exist_ok=True)
            with scratch_beside(folder) as scratch:
                if is_packed(folder):
                    return  # another process has just finished
                missing = self.missing(data_dir)
                there = [file for file in self.files if file not in missing]
                self.check(data_dir, there)
                check_room(data_dir, self.archive_bytes * (3 if missing else 2))  # downloaded, unpacked, packed
                try:
                    self._remove_unpacked(work)
                    for file in there:
                        (work / file).parent.mkdir(parents=True, exist_ok=True)
                        (work / file).unlink(missing_ok=True)
                        (work / file).symlink_to((data_dir / file).resolve())
                    with downloading(self.name, missing, data_dir):
                        found = self.listing(work)
                    self._pack(found, folder, scratch, report)
                finally:
                    self._remove_unpacked(work)
            shutil.rmtree(work, ignore_errors=True)
        except OSError as error:
            raise VitinitError(f"cannot prepare {folder}: {plain(str(error))}") from error

    def _remove_unpacked(self, work: Path) -> None:
        """Remove all but downloaded archives: torchvision takes half an unpacked folder for a whole one."""
        for path in sorted(work.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.is_symlink() or path.relative_to(work).as_posix() not in self.files:
                path.unlink()
        if work.is_dir() and not any(work.iterdir()):
            work.rmdir()

    def _pack(self, found: Listing, folder: Path, scratch: Path, report: Report) -> None:
        import torch

        from vitinit.benchmark.image_files.packing import write_packed

        splits = {"train": (found.train, self.images[0]), "val": (found.test, self.images[1])}
        for images, count in splits.values():
            labels = {label for _, label in images}
            if len(images) != count or labels != set(range(self.classes)) or len(found.classes) != self.classes:
                raise VitinitError(
                    f"{self.name}: found {len(images):,} images of {len(labels)} classes in the archives, "
                    f"{self.title} has {count:,} of {self.classes}"
                )
        write_packed(scratch, folder, found.classes, splits, max(1, torch.get_num_threads()), report)
