"""Batches for a device on which they cannot be made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from vitinit.runners.loaders.base import Loader


class Sent(Loader):
    """A loader whose batches another one makes on the CPU: augmentation needs float64, which Apple's GPUs lack."""

    def __init__(self, made: Loader, device: torch.device) -> None:
        vars(self).update(vars(made))
        self.made, self.device = made, device
        self.name = made.name  # type: ignore[misc]

    def _pairs(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        return ((images.to(self.device), targets.to(self.device)) for images, targets in batches)

    def train(self, epoch: int, first_step: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the batches of one epoch (counted from 0), from one of its steps on."""
        return self._pairs(self.made.train(epoch, first_step))

    def held_out(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's part of the images that accuracy is measured on, in file order."""
        return self._pairs(self.made.held_out())

    def plain(self, numbers: Tensor, split: Literal["train", "held_out"] = "train") -> Tensor:
        """These images of the whole split, normalised, without augmentation."""
        return self.made.plain(numbers, split).to(self.device)
