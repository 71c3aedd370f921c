"""Measurements of a model between epochs, which change nothing of its training."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from benchmark.records.record import Probe
from initializers.attention import attention_layers, token_grid
from initializers.diagnostics import measured, nonlocality, rounded
from runners.probes.attention import of_patch_embedding, target_mass
from runners.probes.receptive_field import receptive_field

IMAGES, RECEPTIVE_FIELD_IMAGES = 32, 4
"""How many test images are measured on: under 5 % of the time of an epoch of 1,400 images, the shortest there is."""


def probe(model: nn.Module, images_BCHW: Tensor, targets_LHNN: Tensor | None, epoch: int) -> Probe:
    """Measure the attention of a model, which is left as it was; no random number is drawn.

    Args:
        model: with attention.
        images_BCHW: on its device.
        targets_LHNN: what its method aimed at, of the layers that have a target; None where it has none.
        epoch: that has ended.
    """
    began = time.perf_counter()
    layers, grid = attention_layers(model), token_grid(model)
    attention, few_BCHW = measured(model, images_BCHW), images_BCHW[:RECEPTIVE_FIELD_IMAGES]
    gates = [layer.module.gating_param.detach().sigmoid() for layer in layers if layer.gated]
    return Probe(
        epoch=epoch,
        images=len(images_BCHW),
        nonlocality=rounded(nonlocality(attention.maps_LHNN, grid)),
        nonlocality_reference=rounded(nonlocality(of_patch_embedding(model, images_BCHW), grid)),
        attention_entropy=rounded(attention.entropy_LH),
        effective_receptive_field=rounded(receptive_field(model, few_BCHW)),
        receptive_field_images=len(few_BCHW),
        impulse_mass=None if targets_LHNN is None else rounded(target_mass(attention.maps_LHNN, targets_LHNN)),
        gating=rounded(torch.stack(gates)) if gates else None,
        seconds=time.perf_counter() - began,
    )
