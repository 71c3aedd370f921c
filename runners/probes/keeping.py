"""Optional outputs beside a record: final weights, attention maps. They change no number."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.records.maps import AttentionMaps, maps_to_bytes
from vitinit.initializers.attention import evaluated, token_grid
from vitinit.initializers.diagnostics import mean_attention
from vitinit.runners.probes.blocks import blocks_of, patch_tokens

MAP_IMAGES = 64
"""Number of test images that attention maps are the mean over."""
GRAM_BATCH, GRAM_BATCHES = 64, 4
"""Images are compared within batches of so many: the number of numbers grows with the square of it."""


@dataclass(frozen=True)
class Snapshot:
    """The attention of a model, and what its blocks put out, after an epoch."""

    maps_LHNN: Tensor
    grams_LBnn: Tensor


def snapshot(model: nn.Module, images_BCHW: Tensor) -> Snapshot:
    """Measure a model, which is left as it was; the first `MAP_IMAGES` images make the maps."""
    maps_LHNN = mean_attention(model, images_BCHW[:MAP_IMAGES]).half().cpu()
    return Snapshot(maps_LHNN, grams(model, images_BCHW, min(GRAM_BATCH, len(images_BCHW))))


@torch.no_grad()
def grams(model: nn.Module, images_BCHW: Tensor, batch: int) -> Tensor:
    """Gram matrices of what each block puts out, layers x batches x batch x batch.

    An image's features are its patch tokens beside one another, minus their mean over the images of the batch. From
    these matrices `analysis.curves.cka` computes linear CKA between layers, epochs and runs.

    Args:
        model: with timm's blocks; evaluated, and left as it was.
        images_BCHW: on the model's device; what does not fill a batch is left out.
        batch: images compared with one another.
    """
    grid, blocks = token_grid(model), blocks_of(model)
    found: list[list[Tensor]] = [[] for _ in blocks]

    def keep(layer: int, output: Tensor) -> None:
        tokens_BND = patch_tokens(output, grid)[0]
        features_BF = tokens_BND.flatten(1).double()
        centred_BF = features_BF - features_BF.mean(0)
        found[layer].append((centred_BF @ centred_BF.T).float().cpu())

    hooks = [
        block.register_forward_hook(lambda _, __, output, layer=layer: keep(layer, output))
        for layer, block in enumerate(blocks)
    ]
    with evaluated(model, hooks):
        for some_BCHW in images_BCHW[: len(images_BCHW) // batch * batch].split(batch):
            model(some_BCHW)
    return torch.stack([torch.stack(each) for each in found])


def keep_maps(
    snapshots: dict[int, Snapshot], images: int, weights: str, path: Path, report: Callable[[str], None]
) -> None:
    """Write what was measured; where it cannot be written, say so.

    Args:
        snapshots: by epoch.
        images: that maps are the mean over.
        weights: fingerprint after the last step.
        path: of the file.
        report: takes what went wrong.
    """
    epochs = tuple(sorted(snapshots))
    maps_ELHNN = np.stack([snapshots[epoch].maps_LHNN.numpy() for epoch in epochs])
    grams_ELBnn = np.stack([snapshots[epoch].grams_LBnn.numpy() for epoch in epochs])
    _keep(
        "attention maps", path, maps_to_bytes(AttentionMaps(epochs, maps_ELHNN, grams_ELBnn, images, weights)), report
    )


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
