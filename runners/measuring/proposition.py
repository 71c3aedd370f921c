"""Proposition 1 of arXiv 2404.01139 by numbers: `vitinit proposition`.

A spatial mixing layer with one f x f filter a channel, followed by a channel mixing layer, reaches what any f x f
filters would, without its own filters being trained, where it has D >= k f^2 channels; k is the rank of its input X.
Activations, norms and skips are left out, as in the paper. X is the patch embedding of real images here, the target
a random filter from every channel to every output, and the channel mixing the best there is (least squares).
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.models.build import build_model
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.initialize import initialize
from vitinit.initializers.methods.conv_filters import spatial_filters
from vitinit.runners.basics.environment import code, environment
from vitinit.runners.basics.streams import stream

SHARES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Numbers of channels D to try, in k f^2."""
ENOUGH = 1e-6
"""A relative error below it counts as none: the arithmetic is float64."""
OUTPUTS = 8
"""Channels of the target."""


class Point(Frozen):
    """Approximation error with D filters."""

    filter: str
    kernel_size: PositiveInt
    width: PositiveInt
    """D."""
    share: PositiveFloat
    """D / (k f^2): from 1 on, the proposition promises that nothing is missing."""
    error: NonNegativeFloat
    """Frobenius norm of what is missing of the target over that of the target."""


class PropositionReport(Frozen):
    """Measurements and the images that they are of."""

    dataset: str
    image_size: PositiveInt
    patch_size: PositiveInt
    images: PositiveInt
    seed: int
    tolerance: NonNegativeFloat
    rank: PositiveInt
    """k: singular values of X above `tolerance` times the largest."""
    other_ranks: dict[str, int]
    """At other tolerances; and behind the GELU and BatchNorm that follow a patch embedding."""
    points: list[Point]
    environment: dict[str, Any]
    """As in a record."""


def enough_from(points: list[Point]) -> float | None:
    """The least share that was tried from which on, at every kernel size, nothing is missing; None: there is none."""
    short = [point.share for point in points if point.error >= ENOUGH]
    return min((point.share for point in points if point.share > max(short, default=0.0)), default=None)


def answer(report: PropositionReport) -> str:
    """Conclusion in a sentence: the number of channels that each kind of filter needs."""
    found = []
    for kind in dict.fromkeys(point.filter for point in report.points):
        share = enough_from([point for point in report.points if point.filter == kind])
        where = "at none of the D tried" if share is None else f"from D = {share:g} k f² on"
        found.append(f"{kind} filters {where}".replace("= 1 k", "= k"))
    most = max(point.share for point in report.points)
    return f"Enough (relative error below {ENOUGH:g}): {', '.join(found)}; tried up to D = {most:g} k f²."


def numerical_rank(x_MD: Tensor, tolerance: float) -> int:
    """Count the singular values of a matrix above `tolerance` times the largest."""
    values = torch.linalg.svdvals(x_MD)
    return int((values > tolerance * values[0]).sum())


def mixer(image_size: int, patch_size: int, width: int, kernel_size: int, kind: str, seed: int) -> Any:
    """A ConvMixer of one block at initialisation, in float64, with filters of `conv_filters`."""
    fields = {"image_size": image_size, "patch_size": patch_size, "width": width, "kernel_size": kernel_size}
    model = build_model(resolve_model({"preset": "convmixer_micro", "depth": 1, **fields}), classes=10)
    params = {"filter": kind, **({"entries": kernel_size**2} if kind == "box" else {})}
    parts = registry.build("kaiming_uniform", {}), registry.build("conv_filters", params)
    initialize(model, *parts, lambda name: stream(seed, name))
    return model.double()


def relative_error(x_BDhw: Tensor, filters_DPQ: Tensor, seed: int) -> float:
    """Return the residual of the best channel mixing behind these filters, relative to the target (see `Point`)."""
    width, side, _ = filters_DPQ.shape
    bank_ODPQ = torch.randn(OUTPUTS, width, side, side, generator=stream(seed, "target"), dtype=x_BDhw.dtype)
    target_MO, spatial_MD = (
        F.conv2d(x_BDhw, weight, padding="same", groups=groups).movedim(1, -1).flatten(0, -2)
        for weight, groups in ((bank_ODPQ, 1), (filters_DPQ[:, None], width))
    )
    mixing_DO = torch.linalg.lstsq(spatial_MD, target_MO, driver="gelsd").solution  # filters may be dependent
    return float((target_MO - spatial_MD @ mixing_DO).norm() / target_MO.norm())


def measure(
    data: Data, dataset: str, patch_size: int, kernel_sizes: list[int], images: int, seed: int, tolerance: float
) -> PropositionReport:
    """Measure k, then the error over D for every kind of filter and kernel size; a function of its arguments.

    Raises:
        VitinitError: there are too few images, or none of their singular values is above the tolerance.
    """
    chosen = torch.randperm(len(data.train.labels), generator=stream(seed, "images"))[:images]
    mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (data.mean, data.std))
    images_BCHW = (data.train.images[chosen].double() / 255 - mean) / std
    size = images_BCHW.shape[-1]
    widest = mixer(size, patch_size, 2 * 3 * patch_size**2, 2, "random", seed)  # of no less rank than the patches
    with torch.no_grad():
        embedded = widest.stem[0](images_BCHW)
        plain, normed = (x.movedim(1, -1).flatten(0, -2) for x in (embedded, widest.stem[1:](embedded)))
    rank = numerical_rank(plain, tolerance)
    if not rank:
        raise VitinitError(f"no singular value is above {tolerance:g} times the largest; a tolerance is below 1")
    ranks = {f"above {each:g}": numerical_rank(plain, each) for each in (1e-1, 1e-2, 1e-3)}
    most = round(max(SHARES) * rank * max(kernel_sizes) ** 2)
    if len(plain) <= most:
        raise VitinitError(f"{len(plain)} patches cannot tell {most} channels apart; take more images")
    points = []
    for side in kernel_sizes:
        for kind in ("random", "impulse", "box"):
            for share in SHARES:
                width = round(share * rank * side**2)
                model = mixer(size, patch_size, width, side, kind, seed)
                with torch.no_grad():
                    error = relative_error(model.stem[0](images_BCHW), spatial_filters(model)[0].weight[:, 0], seed)
                points.append(Point(filter=kind, kernel_size=side, width=width, share=share, error=error))
    return PropositionReport(
        dataset=dataset,
        image_size=size,
        patch_size=patch_size,
        images=len(chosen),
        seed=seed,
        tolerance=tolerance,
        rank=rank,
        other_ranks={**ranks, "behind GELU and BatchNorm": numerical_rank(normed, tolerance)},
        points=points,
        environment=environment(torch.device("cpu"), code()),
    )
