"""Base, then method, once; then measure what came out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vitinit.initializers.apply import apply
from vitinit.initializers.attention import (
    AttentionLayer,
    attention_layers,
    evaluated,
    has_attention,
    position_embedding,
    rotary,
    seen_grids,
)
from vitinit.initializers.diagnostics import attention_input, starts
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import contained
from vitinit.initializers.pseudo_input import pseudo_input
from vitinit.initializers.registry import Aim, Initializer, Job
from vitinit.initializers.report import Fidelity, InitReport, LayerNorms, LayerStart, PlaceboReport
from vitinit.initializers.transaction import scratch

OFFSET_RADIUS = 3


def initialize(
    model: nn.Module,
    base: Initializer,
    method: Initializer | None,
    stream: Callable[[str], torch.Generator],
    images_BCHW: Tensor | None = None,
    job: Job | None = None,
    measure: bool = True,
) -> tuple[InitReport, Tensor | None]:
    """Set every parameter of `model` in place: the base first, then the method over it.

    What is measured of attention stays empty for a model that has none.

    Args:
        model: a supported model, on any device.
        base: sets every parameter.
        method: overwrites some of them, or None.
        stream: gives the CPU generator of a named stream; base and method draw from one each, so that at one seed
            every method starts from the same base.
        images_BCHW: normalised images to measure attention on; they never influence a parameter.
        job: what methods may use beyond the model and random numbers.
        measure: whether to measure attention; without it, all of that stays empty.

    Returns:
        What was done, and the attention targets of the layers that have one (layers x heads x N x N, bool), or None.

    Raises:
        VitinitError: the method does not fit the model, or changed a parameter outside its `touches`, or left a
            value that is not finite.
    """
    parts = [part for part in (base, method) if part is not None]
    for part, kind in zip(parts, ("base", "method"), strict=False):
        if part.kind != kind:
            raise VitinitError(f"initializer {part.name!r} is a {part.kind}, given as the {kind}")
    measuring = [0.0]
    placebo: list[PlaceboReport] = []

    def diagnose(model: nn.Module) -> list[LayerStart]:
        start = time.perf_counter()
        found = starts(model, images_BCHW) if measure and has_attention(model) else []
        measuring.append(time.perf_counter() - start)
        return found

    with scratch(model) as copied:
        applied = apply(copied, parts, stream, replace(job or Job(), diagnose=diagnose, note=placebo.append))
    for part in parts:
        with contained(part.described):
            part.freeze(model)
    aim = applied.aim
    report: dict[str, Any] = {
        "seconds": applied.seconds - sum(measuring),
        "method_parameters": applied.changed[1] if method is not None else [],
        "placebo": placebo[0] if placebo else None,
        "start": diagnose(model),
    }
    layers = attention_layers(model) if measure and has_attention(model) else []
    report["norms"] = [norms(layer) for layer in layers]
    if layers and aim is not None:
        report["pseudo_input"] = on_pseudo_input(model, aim)
    # rotations are told to a layer beside its tokens, and are missing where it is called with tokens alone
    if layers and images_BCHW is not None and not rotary(model):
        attention_BHNN = layers[0].attention(attention_input(model, images_BCHW))
        report["images"] = len(images_BCHW)
        report["offset_maps"] = offset_maps(attention_BHNN.mean(0), seen_grids(model)[0], OFFSET_RADIUS)
        if aim is not None:
            report["real_images"] = fidelity(attention_BHNN, aim.targets_LHNN[0])
    return InitReport.model_validate(report), aim.targets_LHNN.bool() if layers and aim is not None else None


def on_pseudo_input(model: nn.Module, aim: Aim) -> Fidelity:
    """Attention of the first layer on its pseudo-input, beside its target."""
    pseudo_ND = pseudo_input(position_embedding(model)) if aim.pseudo_ND is None else aim.pseudo_ND
    with evaluated(model):
        return fidelity(pseudo_input_attention(attention_layers(model)[0], pseudo_ND)[None], aim.targets_LHNN[0])


@torch.no_grad()
def pseudo_input_attention(layer: AttentionLayer, pseudo_ND: Tensor) -> Tensor:
    """Attention of a layer on a pseudo-input, heads x N x N.

    W_q and W_k without biases, as the solvers see it; GPSA gives its own gated map.
    """
    if layer.gated:
        return layer.attention(pseudo_ND[None])[0]
    pseudo_ND = pseudo_ND.to(layer.query_HdD.device)
    query_HNd, key_HNd = (pseudo_ND @ w.transpose(1, 2) for w in (layer.query_HdD, layer.key_HdD))
    logits_HNN = query_HNd @ key_HNd.transpose(1, 2) * query_HNd.shape[-1] ** -0.5
    return logits_HNN.softmax(-1)


def fidelity(attention_BHNN: Tensor, targets_HNN: Tensor) -> Fidelity:
    """Compare attention maps with 0/1 targets; see `Fidelity` for the three numbers."""
    targets_HNN = targets_HNN.to(attention_BHNN)
    has_target_HN = targets_HNN.sum(-1) > 0
    mass_BHN = (attention_BHNN * targets_HNN).sum(-1)
    hit_BHN = attention_BHNN.argmax(-1) == targets_HNN.argmax(-1)
    return Fidelity(
        mse=float((attention_BHNN - targets_HNN).square().mean()),
        mass=float(mass_BHN[:, has_target_HN].mean()),
        argmax=float(hit_BHN[:, has_target_HN].float().mean()),
    )


def norms(layer: AttentionLayer) -> LayerNorms:
    """Frobenius norms of W_q and W_k per head."""
    query, key = (part.detach().norm(dim=(1, 2)).tolist() for part in (layer.query_HdD, layer.key_HdD))
    return LayerNorms(layer=layer.name, query=query, key=key)


def offset_maps(attention_HNN: Tensor, grid: tuple[int, int], radius: int) -> list[list[list[float]]]:
    """Mean attention at each (row, column) offset: heads x (2r+1) x (2r+1), r = radius, or side - 1 if that is less."""
    rows, columns = grid
    r = min(radius, rows - 1, columns - 1)
    maps_HRC = torch.zeros(attention_HNN.shape[0], 2 * r + 1, 2 * r + 1)
    attention = attention_HNN.detach().cpu().view(-1, rows, columns, rows, columns)
    for i, down in enumerate(range(-r, r + 1)):
        for j, right in enumerate(range(-r, r + 1)):
            # the diagonal of (query row, key row) at distance `down`, then likewise for the columns
            maps_HRC[:, i, j] = attention.diagonal(down, 1, 3).diagonal(right, 1, 2).mean(dim=(1, 2))
    return [[[round(value, 6) for value in row] for row in head] for head in maps_HRC.tolist()]
