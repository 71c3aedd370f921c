"""The kind of dataset that is official archives, known by their md5: downloaded, checked, and packed.

`vitinit data get NAME` packs the images into what `benchmark/image_files/packed.py` reads, straight from the archives:
nothing is unpacked to the disk. From then on it is a packed dataset as ImageNet is.
"""

from __future__ import annotations

import hashlib
import shutil
import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple

from vitinit.benchmark.datasets import downloaded
from vitinit.benchmark.datasets.dataset import Report, silent
from vitinit.benchmark.datasets.downloaded import listed, md5_of
from vitinit.benchmark.datasets.imagenet import IMAGENET
from vitinit.benchmark.datasets.packed import Packed
from vitinit.benchmark.image_files.layout import is_packed
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, plain

BLOCK = 2**20


class Archive(NamedTuple):
    """One file to download.

    Attributes:
        url: Where it is.
        md5: Of its bytes.
        size: Its bytes, where they are known: said when it is cut short.
    """

    url: str
    md5: str
    size: int | None = None


@dataclass
class ArchiveContents:
    """What lies in the archives.

    Attributes:
        sizes: Bytes of every file, by its name.
        texts: Contents of the `label_files`.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)


class Arranged(NamedTuple):
    """Which image belongs where: a name and a label each."""

    classes: tuple[str, ...]
    train: list[tuple[str, int]]
    test: list[tuple[str, int]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Archived(Packed):
    """Implement `arranged`.

    Attributes:
        archives: Each by its path in the data folder, which is torchvision's where it has one.
        label_files: Names of the files in the archives that say what is what.
        statistics: ImageNet's, as is customary for photographs.
    """

    archives: Mapping[str, Archive]
    label_files: tuple[str, ...] = ()
    statistics: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET.statistics
    downloaded: ClassVar[bool] = True

    @abstractmethod
    def arranged(self, found: ArchiveContents) -> Arranged:
        """Classes and splits.

        Raises:
            Exception: A label file is not what it must be: an error of any type becomes one line.
        """

    def images_in(self, content: bytes) -> Iterable[tuple[str, bytes]]:
        """The images in a file of an archive, each with what its name has after the file's, from a `#` on."""
        yield "", content

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Says how to get it."""
        if is_packed(data_dir / self.name):
            return None
        return (
            f"{self.name} is not here: run 'vitinit data get {self.name}', which downloads "
            f"{listed(list(self.archives))} or takes what is in {data_dir}"
        )

    def download(self, data_dir: Path, report: Report = silent) -> None:
        """Checks what is there, downloads what is missing, and packs; what it downloaded is then removed."""
        from vitinit.benchmark.image_files.packing import refuse_existing, scratch_beside

        folder = data_dir / self.name
        if is_packed(folder):
            return
        try:
            refuse_existing(folder)
            data_dir.mkdir(parents=True, exist_ok=True)
            with scratch_beside(folder) as scratch:
                if is_packed(folder):
                    return  # another process has just finished
                missing = [file for file in self.archives if not self._path(file, data_dir).is_file()]
                for file in self.archives.keys() - missing:
                    self._check(file, data_dir)
                for file in missing:
                    self._fetch(file, data_dir, scratch, report)
                self._pack(data_dir, scratch, report)
            shutil.rmtree(self._downloads(data_dir), ignore_errors=True)
        except OSError as error:
            raise VitinitError(f"cannot prepare {folder}: {plain(str(error))}") from error

    def _downloads(self, data_dir: Path) -> Path:
        """Where archives lie that we downloaded, until the dataset is packed; apart from what users put there."""
        return data_dir / f"{self.name}.downloads"

    def _path(self, file: str, data_dir: Path) -> Path:
        """That of an archive."""
        return theirs if (theirs := data_dir / file).is_file() else self._downloads(data_dir) / file

    def _check(self, file: str, data_dir: Path) -> None:
        path, archive = self._path(file, data_dir), self.archives[file]
        if (found := md5_of(path)) != archive.md5:
            raise VitinitError(
                f"{path} is damaged: md5 {found} ({_bytes(path.stat().st_size, archive)}), expected md5 "
                f"{archive.md5}; move it away and run 'vitinit data get {self.name}'"
            )

    def _fetch(self, file: str, data_dir: Path, scratch: Path, report: Report) -> None:
        """Download it: whole and with the right md5 it then is under its name, or not at all."""
        from vitinit.benchmark.image_files.packing import check_room

        path, archive = self._path(file, data_dir), self.archives[file]
        check_room(data_dir, archive.size or 0)
        part = scratch / path.name
        try:
            size, found = _copied(archive, part, report)
        except (OSError, HTTPException, ValueError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise self._not_downloaded(why, data_dir) from error
        if found != archive.md5:
            why = f"{archive.url} gave {_bytes(size, archive)} with md5 {found}, expected md5 {archive.md5}"
            raise self._not_downloaded(why, data_dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)

    def _not_downloaded(self, why: str, data_dir: Path) -> VitinitError:
        missing = [file for file in self.archives if not self._path(file, data_dir).is_file()]
        return VitinitError(f"cannot download {self.name} ({plain(why)}); put {listed(missing)} into {data_dir}")

    def _pack(self, data_dir: Path, scratch: Path, report: Report) -> None:
        from vitinit.benchmark.image_files.packed import ENTRY, Manifest
        from vitinit.benchmark.image_files.packing import SplitWriter, check_room, finish

        paths = [self._path(file, data_dir) for file in self.archives]
        found = self._looked_through(paths)
        arranged = self._checked(found, data_dir)
        splits = {"train": arranged.train, "val": arranged.test}
        places = {
            name: (split, place, label)
            for split, images in splits.items()
            for place, (name, label) in enumerate(images)
        }
        wanted = {name.partition("#")[0] for name in places}
        check_room(data_dir, sum(found.sizes.get(name, 0) for name in wanted) + len(places) * (ENTRY.itemsize + 16))
        total = len(places)
        with ExitStack() as stack:
            writers = {
                split: stack.enter_context(closing(SplitWriter(scratch, split, len(images))))
                for split, images in splits.items()
            }
            for name, content, digest in self._images(paths, wanted):
                if name not in places:
                    raise VitinitError(f"{self._archives(data_dir)}: {name!r} is there twice, or without a label")
                split, place, label = places.pop(name)
                writers[split].write(place, label, content, digest)
                report(total - len(places), total)
            if places:
                raise VitinitError(f"{self._archives(data_dir)}: no {_some(places)}, which the labels name")
            infos = {split: writer.finish() for split, writer in writers.items()}
        manifest = Manifest(classes=list(arranged.classes), train=infos["train"], val=infos["val"])
        finish(scratch, data_dir / self.name, manifest)

    def _looked_through(self, paths: list[Path]) -> ArchiveContents:
        from vitinit.benchmark.image_files.archives import members

        found = ArchiveContents()
        for path in paths:
            for member in members(path):
                found.sizes[member.name] = member.size
                if member.name in self.label_files:
                    found.texts[member.name] = member.read()
        return found

    def _images(self, paths: list[Path], wanted: set[str]) -> Iterator[tuple[str, bytes, bytes]]:
        """All images that have a label: name, bytes, and their sha256; in the order of the archives."""
        from concurrent.futures import ThreadPoolExecutor

        import torch

        from vitinit.benchmark.image_files.images import no_bombs
        from vitinit.benchmark.image_files.packing import AHEAD, checked

        found = self._read(paths, wanted)
        with no_bombs(), ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
            while batch := list(islice(found, AHEAD)):
                places, names, contents = zip(*batch, strict=True)
                where = [f"{name} in {path}" for path, name in zip(places, names, strict=True)]
                yield from zip(names, contents, pool.map(checked, contents, where), strict=True)

    def _read(self, paths: list[Path], wanted: set[str]) -> Iterator[tuple[Path, str, bytes]]:
        from vitinit.benchmark.image_files.archives import members

        for path in paths:
            for member in members(path):
                if member.name in wanted:
                    try:
                        for suffix, content in self.images_in(member.read()):
                            yield path, member.name + suffix, content
                    except ValueError as error:
                        raise VitinitError(f"{path}: {member.name} cannot be read: {plain(str(error), 200)}") from error

    def _checked(self, found: ArchiveContents, data_dir: Path) -> Arranged:
        """What is arranged, if it is what was published."""
        archives = self._archives(data_dir)
        if missing := set(self.label_files) - found.texts.keys():
            raise VitinitError(f"{archives}: no {_some(missing)}")
        try:
            arranged = self.arranged(found)
        except Exception as error:  # of many types: somebody else's files are parsed
            raise VitinitError(f"{archives}: the labels cannot be read: {plain(str(error), 200)}") from error
        if len(arranged.classes) != self.classes:
            raise VitinitError(f"{archives}: found {len(arranged.classes)} classes, {self.title} has {self.classes}")
        for kind, images, count in zip(("training", "test"), arranged[1:], self.images, strict=True):
            if len(images) != count:
                raise VitinitError(f"{archives}: found {len(images):,} {kind} images, {self.title} has {count:,}")
            if {label for _, label in images} != set(range(self.classes)):
                raise VitinitError(f"{archives}: not every class has {kind} images, or an image has another class")
        if len({name for name, _ in arranged.train + arranged.test}) != sum(self.images):
            raise VitinitError(f"{archives}: the labels name an image twice")
        return arranged

    def _archives(self, data_dir: Path) -> str:
        return ", ".join(str(self._path(file, data_dir)) for file in self.archives)


def _copied(archive: Archive, part: Path, report: Report) -> tuple[int, str]:
    """Download one file; its bytes and its md5."""
    size, digest = 0, hashlib.md5(usedforsecurity=False)
    request = urllib.request.Request(archive.url, headers={"User-Agent": "vitinit"})
    with urllib.request.urlopen(request, timeout=downloaded.TIMEOUT_S) as response, part.open("wb") as file:
        while block := response.read(BLOCK):
            file.write(block)
            digest.update(block)
            size += len(block)
            if archive.size is not None:
                if size > archive.size:
                    raise OSError(f"{archive.url} gives more than {archive.size:,} bytes")
                report(size // BLOCK, archive.size // BLOCK)
    return size, digest.hexdigest()


def _bytes(size: int, archive: Archive) -> str:
    return f"{size:,} bytes" if archive.size in (None, size) else f"{size:,} of {archive.size:,} bytes"


def _some(names: Iterable[str]) -> str:
    """A few names of many."""
    found = sorted(names)
    return ", ".join(plain(name, 100) for name in found[:3]) + (f" and {len(found) - 3:,} more" if found[3:] else "")
