"""Datasets of the library `datasets`, as `hf:NAME`: of the Hugging Face Hub, or a folder that `save_to_disk` wrote."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, cause, plain

if TYPE_CHECKING:
    import numpy as np

    from vitinit.benchmark.image_files.arrays import Source, Statistics

HELD_OUT = ("test", "validation", "valid", "val")
"""Names of splits that accuracy is measured on, the first one that has labels; without one, a fifth of each class."""
LABELS = ("label", "labels", "fine_label")
"""Names of the column with the classes, where several columns have some."""


class HuggingFace(Dataset):
    """A dataset with a column of images and one of classes.

    After the name may follow `@` and a revision. Without a network the library takes what is in its own cache.
    """

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Only the library is looked for: the rest takes a network."""
        if find_spec("datasets") is None:
            return f"{spec.label} needs the library datasets, which is not installed: pip install datasets"
        return None

    def images_in_memory(self, spec: DatasetSpec, data_dir: Path) -> int:
        """All its images: the whole training split is decoded, whatever the subset."""
        train, test, _ = _read(spec)
        return len(train[1]) + len(test[1])

    def opened(
        self, spec: DatasetSpec, image_size: int, data_dir: Path
    ) -> tuple[Source, Source, tuple[str, ...], Statistics | None]:
        """Both splits, not decoded yet, and the classes."""
        train, test, classes = _read(spec)
        return _source(spec, *train, image_size), _source(spec, *test, image_size), classes, None


HUGGING_FACE = HuggingFace(name="hf", origin="is fetched by the library datasets: write hf:NAME")

Images = Any
"""A column of encoded images, by number: mappings of bytes and path."""


def _read(spec: DatasetSpec) -> tuple[tuple[Images, np.ndarray], tuple[Images, np.ndarray], tuple[str, ...]]:
    """Images and labels of the training split and of what accuracy is measured on, and the classes.

    Raises:
        VitinitError: it cannot be loaded, or is no dataset of images with a class each.
    """
    import numpy as np
    from datasets import ClassLabel, Image

    from vitinit.benchmark.image_files.subset import held_out_fifth

    splits = _loaded(spec)
    if "train" not in splits:
        raise VitinitError(f"dataset {spec.label}: has no split 'train', but {', '.join(sorted(splits))}")
    features = splits["train"].features
    image = _column(spec, [name for name, kind in features.items() if isinstance(kind, Image)], ("image",), "images")
    label = _column(spec, [name for name, kind in features.items() if isinstance(kind, ClassLabel)], LABELS, "classes")

    def columns(split: Any) -> tuple[Images, np.ndarray]:
        encoded = split.select_columns([image]).cast_column(image, Image(decode=False))
        return _Encoded(encoded, image), np.array(split[label][:], np.int64)

    classes, train = tuple(features[label].names), columns(splits["train"])
    for name in HELD_OUT:
        if name in splits and label in splits[name].features and len(splits[name]):
            test = columns(splits[name])
            if test[1].min() >= 0:  # -1 stands for a label that is not public
                return train, test, classes
    images, labels = train
    halves = [held_out_fifth(np.flatnonzero(labels == each).tolist()) for each in np.unique(labels)]
    kept, taken = (np.sort(np.concatenate([half[part] for half in halves]).astype(int)) for part in (0, 1))
    return (images.part(kept), labels[kept]), (images.part(taken), labels[taken]), classes


def _loaded(spec: DatasetSpec) -> dict[str, Any]:
    import datasets

    name, at, revision = str(spec.path).partition("@")
    try:
        if Path(name).is_dir():
            found = datasets.load_from_disk(name)
        else:
            found = datasets.load_dataset(name, revision=revision if at else None)
    except Exception as error:  # of many types: of the network, the Hub, a file that is damaged
        raise VitinitError(f"dataset {spec.label}: {plain(cause(error), 300)}") from error
    return dict(found) if isinstance(found, dict) else {"train": found}


def _column(spec: DatasetSpec, found: list[str], usual: tuple[str, ...], of: str) -> str:
    if len(found) > 1:
        found = [name for name in usual if name in found][:1] or found
    if len(found) != 1:
        raise VitinitError(f"dataset {spec.label}: one column is to hold {of}; there are {', '.join(found) or 'none'}")
    return found[0]


class _Encoded:
    """Images of a split as they are stored."""

    def __init__(self, rows: Any, column: str) -> None:
        self.rows, self.column = rows, column

    def part(self, numbers: np.ndarray) -> _Encoded:
        return _Encoded(self.rows.select(numbers), self.column)

    def __getitem__(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.rows[number][self.column]
        return found


def _source(spec: DatasetSpec, images: Images, labels: np.ndarray, image_size: int) -> Source:
    import io

    import torch

    from vitinit.benchmark.image_files.arrays import Source
    from vitinit.benchmark.image_files.full_size import centre

    def decoded(numbers: torch.Tensor) -> torch.Tensor:
        pixels = torch.empty(len(numbers), 3, image_size, image_size, dtype=torch.uint8)
        for place, number in enumerate(numbers.tolist()):
            stored = images[number]
            try:
                content = Path(stored["path"]) if stored["bytes"] is None else io.BytesIO(stored["bytes"])
                pixels[place] = torch.from_numpy(centre(content, image_size)).permute(2, 0, 1)
            except Exception as error:  # PIL's decoders raise errors of many types on damaged files
                raise VitinitError(f"dataset {spec.label}: cannot use image {number}: {plain(str(error))}") from error
        return pixels

    return Source(torch.from_numpy(labels), decoded)
