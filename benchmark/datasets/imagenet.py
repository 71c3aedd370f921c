"""ImageNet-1K (ILSVRC2012): accuracy is measured on its validation images, whose labels are public."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.datasets.folder import both, split
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Split, Statistics


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageNet(Dataset):
    """Its authors give it to who asks, as two archives; `torchvision.datasets.ImageNet` unpacks them."""

    statistics: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    streamed: ClassVar[bool] = True

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Says where its image files belong."""
        folder = data_dir / self.name
        if (folder / "train").is_dir() and (folder / "val").is_dir():
            return None
        return (
            f"{self.name} is not here: {folder} has to hold, or be a link to, train/CLASS/*.JPEG and val/CLASS/*.JPEG, "
            "as torchvision.datasets.ImageNet unpacks them"
        )

    def open(self, spec: DatasetSpec, data_dir: Path) -> tuple[Split, Split, tuple[str, ...], Statistics | None]:
        """Lists the files. The checksum covers how many there are of each class, and no contents."""
        from vitinit.benchmark.image_files.arrays import numbered

        folder = data_dir / self.name
        train, test, classes = both(folder)
        if len(classes) != self.classes:
            raise VitinitError(
                f"{folder} has {len(classes)} class folders, ImageNet-1K has {self.classes}; a part of it is a dataset "
                "of its own: folder:PATH"
            )
        # of a million files nobody reads the contents at each start
        first, second = (replace(split(*listed), digest=numbered) for listed in (train, test))
        return first, second, classes, self.statistics


IMAGENET = ImageNet(
    name="imagenet",
    images=(1_281_167, 50_000),
    classes=1000,
    origin="has to be asked for at image-net.org",
)
