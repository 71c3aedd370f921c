"""Registry of datasets: every `Dataset` of the files here, and of installed packages.

A package names its own in the entry point group `vitinit.datasets`, as package.module:NAME. Below is what a spec asks
for of one of them. Imports no torch before it is needed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError, os_errors
from vitinit.initializers.plugins import DATASETS, Registry

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Data

REGISTRY: Registry[Dataset] = Registry(
    "dataset",
    (__package__,),
    group=DATASETS,
    wanted="a Dataset",
    accepts=lambda value: isinstance(value, Dataset),
    collect=True,
    check=lambda dataset, _: dataset.main_metric,
    order=lambda dataset: (dataset.images or (float("inf"),))[0],
)


def names() -> list[str]:
    """Names of all datasets, from the smallest to the largest; last, those whose size only the files tell."""
    return list(REGISTRY.by_name())


def get(name: str) -> Dataset:
    """Return the dataset of this name, or of a file of one's own.

    Raises:
        VitinitError: There is none.
    """
    if not plugins.is_pinned(name):
        return REGISTRY.get(name)
    dataset = plugins.load(name)
    if not isinstance(dataset, Dataset):
        raise VitinitError(f"dataset {name} is no Dataset: name an instance, such as MINE = MyData(name='mine')")
    REGISTRY.check(dataset, name)
    return dataset


def unavailable(spec: DatasetSpec, data_dir: Path) -> str | None:
    """Says in one line why a dataset cannot be used here, None where it can: see `Dataset.unavailable`.

    Raises:
        VitinitError: The name is unknown, or what the spec asks for is wrong.
    """
    try:
        return get(spec.name).unavailable(spec, data_dir)
    except OSError as error:
        return f"{spec.name} cannot be looked for: {error}"


def data_dir(argument: Path | None) -> Path:
    """The folder with the downloaded files: the argument, else environment VITINIT_DATA, else ./data."""
    return argument or Path(os.environ.get("VITINIT_DATA") or "data")


def load(spec: DatasetSpec, image_size: int, data_dir: Path, draw: int = 0, cropped: bool = False) -> Data:
    """Reads a dataset, takes the part the spec asks for and brings the images to `image_size`.

    One that is streamed, or `cropped`, is opened only: its images are decoded and cropped when they are used.

    Args:
        spec: Which dataset, and how much of its training split.
        image_size: Side of the images in pixels. Others are resized (bilinear, antialiased); the images of a folder
            have their shorter side resized and are cropped at the centre.
        data_dir: Where the files of datasets are that are downloaded or prepared.
        draw: Which subset, where the spec redraws it by seed.
        cropped: The recipe crops images of their own size (`Recipe.crops`).

    Raises:
        VitinitError: The dataset is unknown, missing or damaged, a folder is not laid out as it must be, an image
            cannot be used, or `train_size` and `val_size` do not fit the training split.
    """
    from vitinit.benchmark.image_files.arrays import opened

    dataset = get(spec.name)
    sources = dataset.sources(spec, data_dir, draw)
    with os_errors(f"dataset {spec.label}"):
        return opened(sources, image_size, spec.evaluate_on == "test", not (cropped or dataset.streamed))


def decoded_size(spec: DatasetSpec, image_size: int, data_dir: Path) -> int:
    """Bytes of the images, and masks, that `load` holds in memory, found out without decoding them."""
    dataset = get(spec.name)
    if dataset.images:
        held_out = spec.val_size if spec.evaluate_on == "val" else dataset.images[1]
        images = (dataset.training_images(spec) or 0) + (held_out or 0)
    else:  # the whole training split is decoded, whatever the subset
        opened = dataset.sources(spec, data_dir)
        images = len(opened.train.labels) + len(opened.test.labels)
    return images * (4 if dataset.dense else 3) * image_size**2


def download(name: str, data_dir: Path) -> None:
    """Downloads the files of a dataset and checks them; files already there stay as they are.

    Raises:
        VitinitError: The dataset is unknown or needs no download, a file that is there is damaged, or the download
            failed; the message then says which files to put where.
    """
    dataset = get(name)
    if not dataset.downloaded:
        known = ", ".join(sorted(known for known in names() if get(known).downloaded))
        raise VitinitError(f"there is nothing to download for {name}, it {dataset.origin}; to download: {known}")
    with os_errors(f"cannot get {name} into {data_dir}"):
        dataset.download(data_dir)
