"""Method `Stored`: starts that a submission's method has drawn before, in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Progress


class Stored(Initializer):
    """Every parameter is what the file of this seed holds; the file is read as tensors alone."""

    name: ClassVar[str] = "stored"
    touches: ClassVar[tuple[str, ...]] = ("*",)
    folder: str = "."
    digest: str = Field("0" * 64, pattern=r"^[0-9a-f]{64}$")
    """Digest of the submission, so that another one has other runs."""

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, progress: Progress) -> None:
        """Overwrite the parameters.

        Raises:
            VitinitError: the file is missing, or holds anything but these tensors in these shapes.
        """
        path = Path(self.folder) / f"{generator.initial_seed()}.pt"
        try:
            found = torch.load(path, weights_only=True, map_location="cpu")
        except Exception as error:
            raise VitinitError(f"{path.name}: cannot be read as tensors: {type(error).__name__}") from None
        ours = dict(model.named_parameters())
        if not isinstance(found, dict) or found.keys() != ours.keys():
            raise VitinitError(f"{path.name}: holds other tensors than the model's parameters")
        for name, parameter in ours.items():
            tensor = found[name]
            if (
                not isinstance(tensor, torch.Tensor)
                or tensor.shape != parameter.shape
                or tensor.dtype != parameter.dtype
            ):
                raise VitinitError(f"{path.name}: {name} must be {tuple(parameter.shape)} of {parameter.dtype}")
            if not torch.isfinite(tensor).all():
                raise VitinitError(f"{path.name}: {name} has a value that is not finite")
            parameter.copy_(tensor)
