"""Which datasets there are, and the files of those that are downloaded. All that planning needs; imports no torch."""

from __future__ import annotations

import os
from pathlib import Path

from benchmark.spec import DatasetSpec
from initializers.errors import VitinitError, unknown_name

MD5: dict[str, dict[str, str]] = {
    "cifar10": {
        "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
        "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
        "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        "cifar-10-batches-py/batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    "cifar100": {
        "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
        "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "cifar-100-python/meta": "7973b15100ade9c7d40fb424638fde48",
    },
    "svhn": {
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
}
"""md5 of each file by its path in the data folder; torchvision's, which a test compares them with."""

IMAGES = {
    "digits": (1437, 360),
    "pathfinder-easy": (10_000, 2_000),
    "pathfinder-medium": (10_000, 2_000),
    "pathfinder-hard": (10_000, 2_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "imagenet": (1_281_167, 50_000),
}
"""Training and test images of the datasets that are the same for everybody."""
CLASSES = {"digits": 10, "cifar10": 10, "cifar100": 100, "svhn": 10, "imagenet": 1000} | {
    f"pathfinder-{difficulty}": 2 for difficulty in ("easy", "medium", "hard")
}
"""Classes of the same."""
FILE_NAMES = tuple(MD5)
"""The datasets that are files in the data folder."""
DRAWN_NAMES = ("pathfinder-easy", "pathfinder-medium", "pathfinder-hard")
"""The datasets that are drawn when they are loaded (`benchmark/datasets/pathfinder.py`)."""
PACKED_NAMES = ("imagenet",)
"""The datasets that are prepared once (`benchmark/preparing/pack.py`) and never held in memory."""
MANIFEST = "manifest.json"
"""Written last: a folder without it holds no prepared dataset."""
NAMES = ("digits", *DRAWN_NAMES, *FILE_NAMES, *PACKED_NAMES, "folder")


def packed_files(split: str) -> tuple[str, str]:
    """Names of the files with the images and with the index of one split of a prepared dataset."""
    return f"{split}.images", f"{split}.index.npy"


def training_images(spec: DatasetSpec) -> int | None:
    """How many images are trained on; None where only the files tell.

    Raises:
        VitinitError: `train_size` or `val_size` is more than there are, or less than there are classes. Of datasets
            whose size is not known here, `subset.parts` says so.
    """
    if spec.name not in IMAGES:
        return spec.train_size
    left, classes = IMAGES[spec.name][0], CLASSES[spec.name]
    for name in ("val_size", "train_size"):
        size = getattr(spec, name)
        if size is None:
            continue
        if size > left:
            raise VitinitError(f"dataset {spec.label}: {name} {size} is more than the {left} training images there are")
        if size < classes:
            raise VitinitError(f"dataset {spec.label}: {name} {size} is less than its number of classes, {classes}")
        left = left - size if name == "val_size" else size
    if not left:
        raise VitinitError(f"dataset {spec.label}: val_size {spec.val_size} leaves no image to train on")
    return left


def data_dir(argument: Path | None) -> Path:
    """The folder with the downloaded files: the argument, else environment VITINIT_DATA, else ./data."""
    return argument or Path(os.environ.get("VITINIT_DATA") or "data")


def unavailable(spec: DatasetSpec, data_dir: Path) -> str | None:
    """Says why a dataset cannot be used here; cheap, the contents of the files are checked when it is loaded.

    Returns:
        One line that names the missing files and where they belong, or None if nothing is missing.

    Raises:
        VitinitError: The name is unknown, or the path of a `folder` dataset is not a folder.
    """
    if spec.name not in NAMES:
        raise unknown_name("dataset", spec.name, NAMES)
    try:
        is_there = spec.path is None or Path(spec.path).is_dir()
    except OSError:  # a name that is too long, or a folder that may not be looked into
        is_there = False
    if not is_there:
        raise VitinitError(f"dataset {spec.label}: there is no folder {spec.path}")
    if spec.name in PACKED_NAMES:
        needed = [MANIFEST, *packed_files("train"), *packed_files("val")]
        if all((data_dir / spec.name / name).is_file() for name in needed):
            return None
        return (
            f"{spec.name} is not prepared in {data_dir}: run 'vitinit data prepare {spec.name} --from DIR', where DIR "
            "holds train/CLASS/*.JPEG and val/CLASS/*.JPEG"
        )
    missing = [name for name in MD5.get(spec.name, {}) if not (data_dir / name).is_file()]
    if not missing:
        return None
    return f"{spec.name} is not here: put {listed(missing)} into {data_dir}, or run 'vitinit data get {spec.name}'"


def listed(files: list[str]) -> str:
    """File names as words: a folder they share is said once."""
    folder = Path(files[0]).parent
    if folder == Path() or len(files) == 1:
        return ", ".join(files)
    return f"{folder}/ with {', '.join(Path(file).name for file in files)}"
