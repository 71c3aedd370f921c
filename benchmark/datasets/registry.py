"""Registry of datasets: every `Dataset` of the files here, and of installed packages.

A package names its own in the entry point group `vitinit.datasets`, as package.module:NAME. Imports no torch.
"""

from pathlib import Path

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import DATASETS, Registry

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
    found = plugins.load(name)
    if not isinstance(found, Dataset):
        raise VitinitError(f"dataset {name} is no Dataset: name an instance, such as MINE = MyData(name='mine')")
    REGISTRY.check(found, name)
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
