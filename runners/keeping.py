"""What a run keeps beside its record when it is asked to: final weights, attention maps. It changes no number."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmark.atomic import write_atomically
from benchmark.maps import AttentionMaps, maps_to_bytes
from initializers.attention import has_attention, mean_attention
from runners.loaders.base import Loader
from runners.streams import stream

MAP_IMAGES = 64
"""How many test images attention maps are the mean over."""


@dataclass(frozen=True)
class BeforeTraining:
    """Attention of a model that has been initialised, and the images that it was measured on."""

    images_BCHW: Tensor
    maps_LHNN: np.ndarray

    def keep(self, trained: nn.Module, weights: str, path: Path, report: Callable[[str], None]) -> None:
        """Write these maps and those of the trained model; where they cannot be written, say so.

        Args:
            trained: the model after the last step; it is left as it was.
            weights: its fingerprint.
            path: of the file.
            report: takes what went wrong.
        """
        after_LHNN = _measured(trained, self.images_BCHW)
        maps = AttentionMaps(self.maps_LHNN, after_LHNN, len(self.images_BCHW), weights)
        _keep("attention maps", path, maps_to_bytes(maps), report)


def attention_before(initialised: nn.Module, loader: Loader, test_images: int) -> BeforeTraining | None:
    """Measure on the test images that are the same in every run on a dataset; None for a model without attention.

    Args:
        initialised: the model before the first step; it is left as it was.
        loader: of the run.
        test_images: how many images the whole test split has.
    """
    if not has_attention(initialised):
        return None
    # from all over a split that may be sorted by class
    numbers = torch.randperm(test_images, generator=stream(0, "maps"))[:MAP_IMAGES]
    images_BCHW = loader.plain(numbers, "test")
    return BeforeTraining(images_BCHW, _measured(initialised, images_BCHW))


def _measured(model: nn.Module, images_BCHW: Tensor) -> np.ndarray:
    return mean_attention(model, images_BCHW).half().cpu().numpy()


def keep_weights(model: nn.Module, path: Path, report: Callable[[str], None]) -> None:
    """Write the state of a model; where it cannot be written, say so."""
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    _keep("weights", path, buffer.getvalue(), report)


def _keep(what: str, path: Path, content: bytes, report: Callable[[str], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    except OSError as error:
        report(f"the {what} are not kept: cannot write {path}: {error.strerror or error}")
