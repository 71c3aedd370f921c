"""Anybody's images, as `folder:PATH`: one subfolder a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.image_files.images import IMAGE_FORMATS, class_folders, image_files, image_names
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    import torch

    from vitinit.benchmark.image_files.arrays import Source, Statistics
    from vitinit.benchmark.image_files.full_size import Opened


class Folder(Dataset):
    """Any folder of images, one subfolder a class."""

    has_full_size: ClassVar[bool] = True

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Never: a folder that is not there is the user's mistake, not a dataset to be got."""
        try:
            is_there = Path(str(spec.path)).is_dir()
        except OSError:  # a name that is too long, or a folder that may not be looked into
            is_there = False
        if not is_there:
            raise VitinitError(f"dataset {spec.label}: there is no folder {spec.path}")
        return None

    def images_in_memory(self, spec: DatasetSpec, data_dir: Path) -> int:
        """All its images: the whole training split is decoded, whatever the subset."""
        return len(image_names(Path(str(spec.path))))

    def opened(
        self, spec: DatasetSpec, image_size: int, data_dir: Path
    ) -> tuple[Source, Source, tuple[str, ...], Statistics | None]:
        """Either layout; without `test`, `val` is the test split; without `train`, a fifth of each class is."""
        train, test = _splits(spec)
        return _decoded(train, image_size), _decoded(test, image_size), tuple(train), None

    def full_size(self, spec: DatasetSpec, image_size: int, data_dir: Path) -> Opened:
        """The same splits, once every file has been read, and the same statistics."""
        from vitinit.benchmark.image_files.full_size import read_files

        splits = _splits(spec)
        (train, statistics), (test, _) = (read_files(*_listed(split), image_size) for split in splits)
        return train, test, tuple(splits[0]), statistics


FOLDER = Folder(name="folder", origin="is your own: write folder:PATH")


def held_out(root: Path) -> str | None:
    """Name of the folder beside `train` that is the test split: `test`, or `val` where there is no `test`."""
    if not (root / "train").is_dir():
        return None
    return next((name for name in ("test", "val") if (root / name).is_dir()), None)


def _splits(spec: DatasetSpec) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """The files of each class, of training and test split."""
    root = Path(str(spec.path)).resolve()
    if (root / "train").is_dir():
        other = held_out(root)
        if other is None:
            raise VitinitError(f"{root} has a folder train, but neither test nor val beside it")
        train, test = _files(root / "train", root), _files(root / other, root)
        if train.keys() != test.keys():
            raise VitinitError(
                f"{root}: classes differ, {len(train)} in train and {len(test)} in {other}; "
                f"only in one of them: {', '.join(sorted(train.keys() ^ test.keys()))}"
            )
    else:
        train, test = _held_out(_files(root, root))
    if len(train) < 2:
        raise VitinitError(f"{root}: found {len(train)} class folders, at least 2 are needed, as in CLASS/image.png")
    return train, test


def _held_out(classes: dict[str, list[Path]]) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Training and test files, the same fifth of each class always."""
    from vitinit.benchmark.image_files.subset import held_out_fifth

    train, test = {}, {}
    for name, files in classes.items():
        if len(files) < 2:
            raise VitinitError(f"{files[0].parent} has one image; training and test split need one each")
        train[name], test[name] = held_out_fifth(files)
    return train, test


def _files(folder: Path, root: Path) -> dict[str, list[Path]]:
    """The image files of each class, both in sorted order."""
    return {entry.name: image_files(entry, root, IMAGE_FORMATS) for entry in class_folders(folder)}


def _listed(classes: dict[str, list[Path]]) -> tuple[list[Path], torch.Tensor]:
    """The files of a split, and their labels."""
    import torch

    labels = [label for label, files in enumerate(classes.values()) for _ in files]
    return [path for files in classes.values() for path in files], torch.tensor(labels)


def _decoded(classes: dict[str, list[Path]], image_size: int) -> Source:
    import torch

    from vitinit.benchmark.image_files.arrays import Source
    from vitinit.benchmark.image_files.full_size import centre, unusable

    files, labels = _listed(classes)

    def images(numbers: torch.Tensor) -> torch.Tensor:
        decoded = torch.empty(len(numbers), 3, image_size, image_size, dtype=torch.uint8)
        for place, number in enumerate(numbers.tolist()):
            try:
                decoded[place] = torch.from_numpy(centre(files[number], image_size)).permute(2, 0, 1)
            except Exception as error:  # PIL's decoders raise errors of many types on damaged files
                raise unusable(files[number], error) from error
        return decoded

    return Source(labels, images)
