"""A method that takes more memory than a job asks for."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from vitinit.initializers.registry import Initializer, Job


class Hungry(Initializer):
    """Leaves the model as it is, after it has taken 6 GiB."""

    name: ClassVar[str] = "hungry"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)
    deterministic: ClassVar[bool] = True

    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Take the memory, and keep it long enough to be seen."""
        import time

        taken = torch.ones(6 * 2**28)
        time.sleep(20)
        del taken
