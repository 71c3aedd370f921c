"""Checks of a study before anything trains."""

from __future__ import annotations

from vitinit.benchmark.augmentations import registry as augmentations
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError, located
from vitinit.runners.basics.setting import Setting, check_execution
from vitinit.runners.loaders import open_data


def preflight(cells: list[Cell], setting: Setting) -> None:
    """Open every dataset once before anything trains, so that bad data stops a study at its start.

    What is to be resident is decoded, the others are not.

    Raises:
        VitinitError: no dataset can be read, or one has fewer training images than a batch; or an
            augmentation cannot be carried out; or an execution would change numbers.
    """
    for cell in cells:
        check_execution(cell.spec, setting.execution)
    for _, augmentation in {each for cell in cells for each in augmentations.of_recipe(cell.spec.recipe)}:
        augmentation.draw(1, 32, 0)
    images: dict[DatasetSpec, int] = {}
    unread: list[VitinitError] = []
    loader, device = setting.execution.loader, setting.execution.device
    for dataset, size, cropped in dict.fromkeys(
        (cell.spec.dataset, cell.spec.model.image_size, cell.spec.recipe.crops) for cell in cells
    ):
        try:
            data = open_data(dataset, size, setting.data_dir, loader, device, 0, cropped, setting.sharing)
            images[dataset] = len(data.train.labels)
        except Exception as error:  # a dataset of the user's may raise anything
            said = f"dataset {dataset.label}: {type(error).__name__}: {located(error)}"
            unread.append(error if isinstance(error, VitinitError) else VitinitError(said))
    if unread and not images:
        raise unread[0]
    for cell in cells:
        number, batch_size = images.get(cell.spec.dataset), cell.spec.recipe.batch_size
        if number is not None and number < batch_size:
            raise VitinitError(f"{cell.describe()}: batch_size {batch_size} is more than the {number} training images")
