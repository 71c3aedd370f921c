"""Where all datasets are found: every `Dataset` of the files here and in `archives`, and of installed packages.

A package names its own in the entry point group `vitinit.datasets`, as package.module:NAME. Imports no torch.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers import own_files
from vitinit.initializers.errors import VitinitError, unknown_name
from vitinit.initializers.plugins import entry_points, modules

ENTRY_POINTS = "vitinit.datasets"


class _Found(NamedTuple):
    dataset: Dataset
    where: str


@cache
def _found() -> dict[str, _Found]:
    found: dict[str, _Found] = {}

    def add(dataset: Dataset, where: str) -> None:
        if not is_folder_name(dataset.name):  # it becomes part of a folder's
            allowed = "letters, digits, '-', '_' and '.'"
            raise VitinitError(f"{where}: the dataset's name {dataset.name!r} is to be {allowed}")
        other = found.setdefault(dataset.name, _Found(dataset, where))
        if other.dataset is not dataset:
            raise VitinitError(f"two datasets are called {dataset.name!r}: in {other.where} and in {where}")

    for module in (*modules(__package__), *modules(f"{__package__}.archives")):
        for value in vars(module).values():
            if isinstance(value, Dataset):
                add(value, module.__name__)
    for where, value in entry_points(ENTRY_POINTS):
        if not isinstance(value, Dataset):
            raise VitinitError(f"{where} is not a Dataset")
        add(value, where)
    return found


def names() -> list[str]:
    """Names of all datasets, from the smallest to the largest; last, those whose size only the files tell."""
    found = _found()
    return sorted(found, key=lambda name: (found[name].dataset.images or (float("inf"),))[0])


def get(name: str) -> Dataset:
    """The dataset of this name.

    Raises:
        VitinitError: There is none.
    """
    if own_files.is_pinned(name):
        return _own(name)
    if name not in _found():
        raise unknown_name("dataset", name, names())
    return _found()[name].dataset


@cache
def _own(name: str) -> Dataset:
    """The dataset of somebody's file: an instance, or a class that is one with its defaults."""
    found = own_files.load(name)
    if isinstance(found, type) and issubclass(found, Dataset):
        try:
            found = found(name=f"{found.__name__.lower()}-{name.rpartition('@')[2][:7]}")
        except TypeError as error:
            raise VitinitError(f"dataset {name}: {error}; name an instance of it in its file") from None
    if not isinstance(found, Dataset):
        raise VitinitError(f"dataset {name} is a {type(found).__name__}, and no Dataset")
    return found


def unavailable(spec: DatasetSpec, data_dir: Path) -> str | None:
    """Says in one line why a dataset cannot be used here, None where it can: see `Dataset.unavailable`.

    Raises:
        VitinitError: The name is unknown, or what the spec asks for is wrong.
    """
    try:
        return get(spec.name).unavailable(spec, data_dir)
    except OSError as error:
        return f"{spec.name} cannot be looked for: {error}"
