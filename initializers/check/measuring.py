"""Numbers of a model on a batch: loss, attention, streams, gradients, a step of SGD, and what its output depends on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitinit.initializers.adapters.registry import layer_scales
from vitinit.initializers.attention import token_grid
from vitinit.initializers.check.inputs import logits_of, shuffled_patches
from vitinit.initializers.check.nearest import Purpose
from vitinit.initializers.check.tensors import zero_norms
from vitinit.initializers.check.watch import Watched, blocks, watching
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.streams import stream
from vitinit.initializers.whole_model import classifiers

FALLS = (0.1, 0.01, 0.001)
"""Shares of the loss by which a step of SGD would lower it if the loss were linear."""
NOISE = 0.02
"""Standard deviation of what stands in for a matrix of zeros while gradients are measured."""


@dataclass
class Measured:
    """Numbers of one model on one batch."""

    loss: float
    """NaN where it is not finite."""
    per_image: list[float]
    logits: Tensor
    watched: Watched
    features: Tensor
    """B x D, input of the classifier; the logits where there is none that is known."""
    gradients: dict[str, float | None]
    """Norm by parameter, with stand-ins for zeros; None where it is not part of the output."""
    standing_in: list[str]
    """Tensors of zeros that were replaced while gradients were measured."""
    step: float | None = None
    after: float | None = None
    stepped: bool = False
    """True where steps were tried."""
    together: float = 0.0
    """Largest change of an image's output, over its size, by the other images of the batch."""
    moved: float | None = None
    """The same by another order of patches; None where there is no grid."""
    grid: tuple[int, int] | None = None
    blocks: list[str] = field(default_factory=list)
    zero_norms: list[str] = field(default_factory=list)
    """Weights of norms in which there is a 0."""


@contextmanager
def as_in_training(model: nn.Module) -> Iterator[None]:
    """Statistics of the batch where there are batch norms, and no dropout."""
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    yield
    model.eval()


def measure(model: nn.Module, images_BCHW: Tensor, labels_B: Tensor, known: dict[str, Purpose], seed: int) -> Measured:
    """Measure a model within `undone`: weights are changed.

    Raises:
        VitinitError: it does not take the images, or gives no logits.
    """
    names, heads = blocks(model), list(classifiers(model).values())
    grid = None
    with suppress(VitinitError):
        grid = token_grid(model)
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    zeros = zero_norms(model)
    dependent = _dependences(model, images_BCHW, heads, grid, seed)
    with as_in_training(model):
        with watching(model, names, heads, grid) as watched:
            logits = _run(model, images_BCHW)
            losses_B = F.cross_entropy(logits.float(), labels_B, reduction="none")
            loss = losses_B.mean()
        if trained and loss.requires_grad:
            loss.backward()
        found = Measured(
            loss=float(loss.detach()),
            per_image=losses_B.detach().tolist(),
            logits=logits.detach().float(),
            watched=watched,
            features=_features(watched, logits),
            gradients=_norms(trained),
            standing_in=[],
            together=dependent[0],
            moved=dependent[1],
            grid=grid,
            blocks=names,
            zero_norms=zeros,
        )
        if math.isfinite(found.loss) and trained and loss.requires_grad:
            _step(model, images_BCHW, labels_B, trained, found)
            found.standing_in = _stand_in(model, known, seed)
            if found.standing_in:
                for parameter in trained.values():
                    parameter.grad = None
                F.cross_entropy(_run(model, images_BCHW).float(), labels_B).backward()
                found.gradients = _norms(trained)
    return found


@torch.no_grad()
def _dependences(
    model: nn.Module, images_BCHW: Tensor, heads: list[str], grid: tuple[int, int] | None, seed: int
) -> tuple[float, float | None]:
    """Return how much the output of an image depends on the other images, and on the order of its patches."""
    model.eval()

    def features(images: Tensor) -> Tensor:
        with watching(model, [], heads, None) as watched:
            logits = _run(model, images)
        return _features(watched, logits)

    alone = features(images_BCHW[:1])
    together = _change(features(images_BCHW[:2])[:1], alone) if len(images_BCHW) > 1 else 0.0
    moved = shuffled_patches(images_BCHW[:1], grid, seed) if grid else None
    return together, None if moved is None else _change(alone, features(moved))


def _change(left: Tensor, right: Tensor) -> float:
    if left.shape != right.shape:
        return math.inf
    return float((left - right).norm() / left.norm().clamp(min=1e-30))


def _forget(model: nn.Module) -> None:
    """Empty caches of tensors, as LeViT has them of its biases while it is evaluated: weights change here."""
    for module in model.modules():
        for name, value in vars(module).items():
            if type(value) is dict and name[0] != "_" and any(isinstance(one, Tensor) for one in value.values()):
                value.clear()


def _run(model: nn.Module, images_BCHW: Tensor) -> Tensor:
    _forget(model)
    try:
        out = model(images_BCHW)
    except (AssertionError, RuntimeError, TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        size = " x ".join(map(str, images_BCHW.shape[1:]))
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise VitinitError(f"{type(model).__name__} does not take images of {size}: {plain(why, 200)}") from None
    return logits_of(out)


def _features(watched: Watched, logits: Tensor) -> Tensor:
    fitting = [one for one in watched.features if len(one) == len(logits)]
    return (fitting[0] if fitting else logits.detach()).flatten(1).float()


def _norms(trained: dict[str, nn.Parameter]) -> dict[str, float | None]:
    return {name: None if one.grad is None else float(one.grad.float().norm()) for name, one in trained.items()}


def _step(
    model: nn.Module, images_BCHW: Tensor, labels_B: Tensor, trained: dict[str, nn.Parameter], found: Measured
) -> None:
    """Try steps of SGD, the largest first, and undo each."""
    square = sum(norm**2 for norm in found.gradients.values() if norm is not None)
    if not 0 < square < math.inf:
        return
    before = {name: one.detach().clone() for name, one in trained.items()}
    found.stepped = True
    for share in FALLS:
        rate = share * found.loss / square
        with torch.no_grad():
            for parameter in trained.values():
                if parameter.grad is not None:
                    parameter.sub_(rate * parameter.grad)
            after = float(F.cross_entropy(_run(model, images_BCHW).float(), labels_B))
            for name, parameter in trained.items():
                parameter.copy_(before[name])
        if after < found.loss:
            found.step, found.after = rate, after
            return


@torch.no_grad()
def _stand_in(model: nn.Module, known: dict[str, Purpose], seed: int) -> list[str]:
    """Replace zeros that are meant to be left by training: matrices by small noise, scales of branches by 1."""
    generator, replaced = stream(seed, "check/zeros"), list[str]()
    scales = {id(one) for one in layer_scales(model)}
    for name, parameter in model.named_parameters():
        if bool(parameter.any()) or not parameter.numel():
            continue
        role = known[name].role if name in known else ""
        if parameter.ndim > 1 and role not in ("position", "token", ""):
            noise = torch.empty(parameter.shape).normal_(0, NOISE, generator=generator)
            parameter.copy_(noise)
            replaced.append(name)
        elif id(parameter) in scales or (role == "norm" and name.endswith("weight")):
            parameter.fill_(1.0)
            replaced.append(name)
    return replaced
