"""Datasets of the library `datasets`, as `hf:NAME`: of the Hugging Face Hub, or a folder that `save_to_disk` wrote."""

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vitinit.benchmark.datasets.folder import below, stamp
from vitinit.benchmark.datasets.registry import Dataset, Opened
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, brief
from vitinit.initializers.plugins import imported

HELD_OUT = ("test", "validation", "valid", "val")
"""Names of splits that accuracy is measured on, the first one that has labels; without any, a fifth of each class."""
LABELS = ("label", "labels", "fine_label")
"""Names of the column with the classes, where several columns have some."""


class HuggingFace(Dataset):
    """A dataset with a column of images and one of classes.

    After the name may follow `@` and a revision. Without a network the library takes what is in its own cache.
    """

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Look for the library alone: the rest takes a network."""
        if find_spec("datasets") is None:
            return f"{spec.label} needs the library datasets, which is not installed: pip install 'datasets<5'"
        return None

    def own_files(self, spec: DatasetSpec) -> dict[str, Any]:
        """Stamp of a folder that `save_to_disk` wrote."""
        return {"stamp": stamp(below(spec.root), spec.root)} if spec.root.is_dir() else {}

    def open(self, spec: DatasetSpec, data_dir: Path) -> Opened:
        """Both splits and the classes."""
        import datasets
        import torch

        from vitinit.benchmark.image_files.arrays import encoded

        name, _, revision = str(spec.path).partition("@")
        with imported(f"dataset {spec.label}", VitinitError):  # errors of the network, the Hub, a damaged file
            if spec.root.is_dir():
                splits = datasets.load_from_disk(str(spec.root))
            else:
                splits = datasets.load_dataset(name, revision=revision or None)
        if not isinstance(splits, dict):
            splits = {"train": splits}
        if "train" not in splits:
            raise VitinitError(f"dataset {spec.label}: has no split 'train', but {', '.join(sorted(splits))}")
        features = splits["train"].features
        image = _column(spec, features, datasets.Image, ("image",), "images")
        label = _column(spec, features, datasets.ClassLabel, LABELS, "classes")
        classes, both = features[label].names, list[Any]()
        for name in filter(splits.__contains__, ("train", *HELD_OUT)):
            rows = splits[name].select_columns([image]).cast_column(image, datasets.Image(decode=False))
            # they are absent, None or -1 where they are not public
            labels = splits[name][label] if label in splits[name].features else [None]
            unlabelled = len([number for number in labels if number in (None, -1)])
            if unlabelled and name == "train":
                raise VitinitError(f"dataset {spec.label}: {unlabelled} of its training images have no label")
            if unlabelled or len(both) == 2:
                continue
            others = getattr(splits[name].features[label], "names", None)
            if others != classes:
                raise VitinitError(
                    f"dataset {spec.label}: classes differ, {brief(classes)} in train and {brief(others)} in {name}: "
                    "save it with one list of names for both"
                )
            both.append(
                encoded(
                    torch.tensor(labels), partial(_content, rows, image), lambda number: f"{number} of {spec.label}"
                )
            )
        if len(both) < 2:
            if unknown := sorted(splits.keys() - {"train", *HELD_OUT}):
                raise VitinitError(
                    f"dataset {spec.label}: none of {', '.join(HELD_OUT)} has labels, and {', '.join(unknown)} is none "
                    "of these: save it (save_to_disk) without that split, or with its name changed to validation"
                )
            both = [*both[0].a_fifth_held_out(classes)]
        train, test = both
        return Opened(train, test, tuple(classes))


HUGGING_FACE = HuggingFace(name="hf", origin="is fetched by the library datasets: write hf:NAME")


def _column(spec: DatasetSpec, features: Mapping[str, Any], feature: type, usual: tuple[str, ...], noun: str) -> str:
    columns = [name for name, value in features.items() if isinstance(value, feature)]
    columns = [name for name in usual if name in columns][:1] or columns
    if len(columns) != 1:
        raise VitinitError(
            f"dataset {spec.label}: one column is to hold {noun}; there are {', '.join(columns) or 'none'}"
        )
    return columns[0]


def _content(rows: Any, column: str, number: int) -> bytes:
    stored = rows[number][column]
    return Path(stored["path"]).read_bytes() if stored["bytes"] is None else stored["bytes"]
