"""The kind of dataset that is prepared once, from image files in one folder a class, and never held in memory.

`vitinit data prepare NAME --from DIR` (`benchmark/preparing/pack.py`) makes what `benchmark/image_files/packed.py`
reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vitinit.benchmark.datasets.dataset import Dataset
from vitinit.benchmark.image_files.layout import is_packed
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from vitinit.benchmark.image_files.arrays import Source, Statistics
    from vitinit.benchmark.image_files.full_size import Opened


@dataclass(frozen=True, eq=False, kw_only=True)
class Packed(Dataset):
    """All that is needed is an instance.

    Attributes:
        title: What its authors call it.
        statistics: Its customary ones: they are never computed.
    """

    title: str
    images: tuple[int, int]
    classes: int
    statistics: Statistics
    packed: ClassVar[bool] = True
    has_full_size: ClassVar[bool] = True

    def hint(self, source: Path) -> str:
        """Return advice on a folder without `train` or `val`; empty where nothing is known."""
        return ""

    def unavailable(self, spec: DatasetSpec, data_dir: Path) -> str | None:
        """Says how to prepare it."""
        if is_packed(data_dir / self.name):
            return None
        return (
            f"{self.name} is not prepared in {data_dir}: run 'vitinit data prepare {self.name} --from DIR', where DIR "
            "holds train/CLASS/*.JPEG and val/CLASS/*.JPEG"
        )

    def opened(
        self, spec: DatasetSpec, image_size: int, data_dir: Path
    ) -> tuple[Source, Source, tuple[str, ...], Statistics | None]:
        """Refused: each epoch crops its images anew."""
        raise VitinitError(f"{self.name} is not decoded beforehand: it has a loader of its own")

    def full_size(self, spec: DatasetSpec, image_size: int, data_dir: Path) -> Opened:
        """Opens it, and reads no image."""
        from vitinit.benchmark.image_files.packed import open_packed

        return *open_packed(data_dir / self.name), self.statistics
