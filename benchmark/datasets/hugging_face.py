"""Datasets of the library `datasets`, as `hf:NAME`: of the Hugging Face Hub, or a folder that `save_to_disk` wrote."""

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vitinit.benchmark.datasets.dataset import Dataset, Opened
from vitinit.benchmark.image_files.images import below, stamp
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, cause, plain

HELD_OUT = ("test", "validation", "valid", "val")
"""Names of splits that accuracy is measured on, the first one that has labels; without one, a fifth of each class."""
LABELS = ("label", "labels", "fine_label")
"""Names of the column with the classes, where several columns have some."""


class HuggingFace(Dataset):
    """A dataset with a column of images and one of classes.

    After the name may follow `@` and a revision. Without a network the library takes what is in its own cache.
    """

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Look for the library alone: the rest takes a network."""
        if find_spec("datasets") is None:
            return f"{spec.label} needs the library datasets, which is not installed: pip install datasets"
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
        try:
            if spec.root.is_dir():
                splits = datasets.load_from_disk(str(spec.root))
            else:
                splits = datasets.load_dataset(name, revision=revision or None)
        except Exception as error:  # of many types: of the network, the Hub, a file that is damaged
            raise VitinitError(f"dataset {spec.label}: {plain(cause(error), 300)}") from error
        if not isinstance(splits, dict):
            splits = {"train": splits}
        if "train" not in splits:
            raise VitinitError(f"dataset {spec.label}: has no split 'train', but {', '.join(sorted(splits))}")
        features = splits["train"].features
        image = _column(spec, features, datasets.Image, ("image",), "images")
        label = _column(spec, features, datasets.ClassLabel, LABELS, "classes")
        found: dict[str, Any] = {}
        for name in splits.keys() & {"train", *HELD_OUT}:
            rows = splits[name].select_columns([image]).cast_column(image, datasets.Image(decode=False))
            # they are absent, None or -1 where they are not public
            labels = splits[name][label] if label in splits[name].features else [None]
            unlabelled = sum(each is None or each < 0 for each in labels)
            if unlabelled and name == "train":
                raise VitinitError(f"dataset {spec.label}: {unlabelled} of its training images have no label")
            if not unlabelled:
                content = partial(_content, rows, image)
                found[name] = encoded(torch.tensor(labels), content, lambda number: f"{number} of {spec.label}")
        train, classes = found.pop("train"), tuple(features[label].names)
        test = next((found[name] for name in HELD_OUT if name in found), None)
        return *((train, test) if test else train.a_fifth_held_out(classes)), classes, None


HUGGING_FACE = HuggingFace(name="hf", origin="is fetched by the library datasets: write hf:NAME")


def _column(spec: DatasetSpec, features: Mapping[str, Any], kind: type, usual: tuple[str, ...], of: str) -> str:
    found = [name for name, each in features.items() if isinstance(each, kind)]
    if len(found) > 1:
        found = [name for name in usual if name in found][:1] or found
    if len(found) != 1:
        raise VitinitError(f"dataset {spec.label}: one column is to hold {of}; there are {', '.join(found) or 'none'}")
    return found[0]


def _content(rows: Any, column: str, number: int) -> bytes:
    stored = rows[number][column]
    return Path(stored["path"]).read_bytes() if stored["bytes"] is None else stored["bytes"]
