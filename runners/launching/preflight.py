"""What would stop a study is looked for before anything trains."""

from __future__ import annotations

from benchmark.grids.schema import Cell
from benchmark.spec import DatasetSpec
from initializers.errors import VitinitError
from runners.augmentation.rand_augment import recording
from runners.basics.setting import Setting, check_whole_batches
from runners.loaders import open_data


def preflight(cells: list[Cell], setting: Setting) -> dict[DatasetSpec, int]:
    """Open every dataset once before anything trains, so that bad data stops a study at its start.

    What is to be resident is decoded, the others are not.

    Returns:
        Number of training images by dataset.

    Raises:
        VitinitError: a dataset cannot be read, or has fewer training images than a batch; or a recipe's `rand_augment`
            cannot be carried out; or batches would be cut that BatchNorm needs whole.
    """
    for cell in cells:
        check_whole_batches(cell.spec, setting.execution)
    for config in {cell.spec.recipe.rand_augment for cell in cells} - {None}:
        recording(str(config), 32)
    images: dict[DatasetSpec, int] = {}
    loader, device = setting.execution.loader, setting.execution.device
    for dataset, size, cropped in dict.fromkeys(
        (cell.spec.dataset, cell.spec.model.image_size, cell.spec.recipe.crops) for cell in cells
    ):
        data = open_data(dataset, size, setting.data_dir, loader, device, cropped=cropped)
        images[dataset] = len(data.train.labels)
    for cell in cells:
        size, count = cell.spec.recipe.batch_size, images[cell.spec.dataset]
        if size > count:
            raise VitinitError(f"{cell.describe()}: batch_size {size} is more than the {count} training images")
    return images
