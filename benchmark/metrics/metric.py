"""Base class of metrics: sums over images, which batches and processes add up, and values of them. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:  # annotations name it, for all metrics; torch takes seconds to import
    Tensor = Any


class Metric(ABC):
    """A metric of held-out images. Subclass it in a file of this folder; torch is imported inside its methods.

    Where a dataset has masks, each pixel counts as one of the N images of a batch.
    """

    name: ClassVar[str]
    """In records and on the command line."""
    label: ClassVar[str]
    """In tables and figures."""
    of: ClassVar[tuple[str, ...]] = ("labels",)
    """Kinds of datasets that it is measured on: `labels`, `masks`."""
    at_the_end: ClassVar[bool] = False
    """Only measured after the last epoch."""
    percent: ClassVar[bool] = True
    """Tables and figures can show it."""
    lower_is_better: ClassVar[bool] = False

    def fits(self, classes: int) -> bool:
        """Return True where it says something of this many classes."""
        return True

    @abstractmethod
    def sums(self, logits_NK: Tensor, labels_N: Tensor) -> Tensor:
        """Return the sums of a batch, float64, on the device of the logits.

        Args:
            logits_NK: of the model, in its precision.
            labels_N: int64; -100 is not to count.
        """

    @abstractmethod
    def values(self, sums: Tensor) -> dict[str, float]:
        """Return the value by its name, or several by names that begin with it, from the sums over all images.

        Args:
            sums: float64, on the CPU.
        """
