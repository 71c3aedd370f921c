"""Softmax attention, token streams and their gradients of any model, seen while it runs.

Attention is seen where PyTorch computes a softmax, below all libraries: nothing has to be known of the model.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from vitinit.initializers.diagnostics import nonlocality

SOFTMAX = (torch.ops.aten._softmax.default, torch.ops.aten._safe_softmax.default)
MASKED = 60.0
"""Below the largest logit of a row: weights of e^-60, such as those that Swin masks by -100, are left out of a row."""
HOLDERS = (nn.ModuleList, nn.ModuleDict)


@dataclass
class AttentionSeen:
    """Numbers of one softmax."""

    module: str
    keys: int
    logits: float
    """Standard deviation of a row, mean over rows, of the head where it is largest."""
    least: float
    """The same of the head where it is smallest."""
    entropy: float
    """In nats, mean over heads."""
    lowest: float
    """Lowest entropy of a head."""
    distance: float | None
    share: float
    """Share of all attention that the most attended key gets, in the head where it is largest."""
    by_place: bool
    """True where all images have the same logits."""


@dataclass
class Stream:
    """Numbers of the input of a block."""

    name: str
    size: float
    cosine: float
    rank: float
    after: float = 0.0
    """Root mean square of the block's output, where it has the shape of the input."""


@dataclass
class Watched:
    """All that was seen in one forward pass, in its order."""

    attention: list[AttentionSeen] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    """Names of all modules that were called."""
    features: list[Tensor] = field(default_factory=list)
    """Input of the classifier."""


def blocks(model: nn.Module) -> list[str]:
    """Names of the blocks of a model: modules of one class in a row, the innermost such row."""
    groups: dict[tuple[type, str], list[str]] = defaultdict(list)
    for name, module in model.named_modules():
        inside = any(True for _ in module.children())
        if name and inside and not isinstance(module, HOLDERS) and any(one.ndim > 1 for one in module.parameters()):
            groups[type(module), re.sub(r"\d+", "*", name)].append(name)
    rows = {name: pattern.count("*") for (_, pattern), names in groups.items() if len(names) > 1 for name in names}
    found: list[str] = []
    for name in rows:
        outer = next((one for one in rows if name.startswith(f"{one}.") and rows[one] == rows[name]), None)
        deeper = any(one.startswith(f"{name}.") and rows[one] > rows[name] for one in rows)
        if outer is None and not deeper and not any(name.startswith(f"{one}.") for one in found):
            found.append(name)
    return found


class _Softmaxes(TorchDispatchMode):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in SOFTMAX and args[1] in (-1, args[0].ndim - 1) and args[0].ndim >= 3:
            self.watch.softmax(args[0], out)
        return out


class _Watch:
    def __init__(self, grid: tuple[int, int] | None, found: Watched) -> None:
        self.grid, self.found = grid, found
        self.stack: list[tuple[str, tuple[int, ...]]] = []

    def softmax(self, logits: Tensor, out: Tensor) -> None:
        """Measure one softmax over the last dimension, where it is between tokens."""
        *_, queries, keys = logits.shape
        if keys < 2 or queries < 1:
            return
        name = next((name for name, shape in reversed(self.stack) if shape), "")
        shape = next((shape for _, shape in reversed(self.stack) if shape), ())
        if not _among_tokens(keys, shape):
            return
        self.found.attention.append(_seen(name, logits, out, self.grid))


def _among_tokens(keys: int, shape: tuple[int, ...]) -> bool:
    """Return True where a module of that input may attend between its tokens: keys are as many as these."""
    if len(shape) == 3:
        return keys in shape[:2] or shape[-1] != keys
    return True


@torch.no_grad()
def _seen(name: str, logits: Tensor, out: Tensor, grid: tuple[int, int] | None) -> AttentionSeen:
    *_, queries, keys = logits.shape
    heads = logits.shape[-3] if logits.ndim > 3 else 1
    rows_RHQK = logits.reshape(-1, heads, queries, keys).float()
    maps_RHQK = out.reshape(-1, heads, queries, keys).float()
    masked = rows_RHQK < rows_RHQK.amax(-1, keepdim=True) - MASKED
    if bool(masked.any()):
        free = (~masked).float()
        count = free.sum(-1).clamp(min=1)
        kept = torch.where(masked, 0.0, rows_RHQK)
        mean = kept.sum(-1) / count
        std_RHQ = ((kept - mean[..., None]).square() * free).sum(-1).div(count).sqrt()
    else:
        std_RHQ = rows_RHQK.std(-1, correction=0)
    std_H = std_RHQ.mean((0, 2))
    entropy_H = torch.special.entr(maps_RHQK).sum(-1).mean((0, 2))
    share_H = maps_RHQK.mean(2).amax(-1).mean(0)
    first, last = rows_RHQK[0], rows_RHQK[-1]
    by_place = len(rows_RHQK) > 1 and bool(torch.allclose(first, last, rtol=1e-6, atol=0)) and bool(first.any())
    return AttentionSeen(
        module=name,
        keys=keys,
        logits=float(std_H.max()),
        least=float(std_H.min()),
        entropy=float(entropy_H.mean()),
        lowest=float(entropy_H.min()),
        distance=_distance(maps_RHQK, grid),
        share=float(share_H.max()),
        by_place=by_place,
    )


def _distance(maps_RHQK: Tensor, grid: tuple[int, int] | None) -> float | None:
    """Mean distance in tokens; tokens without a place come first, up to ten of them."""
    queries, keys = maps_RHQK.shape[-2:]
    if queries != keys:
        return None
    places = [grid] if grid and 0 <= keys - math.prod(grid) <= 10 else []
    places += [(side, side) for extra in range(11) if (side := math.isqrt(max(keys - extra, 0))) ** 2 == keys - extra]
    if not places or min(places[0]) < 2:
        return None
    count = math.prod(places[0])
    map_HNN = maps_RHQK.mean(0)[:, -count:, -count:]
    map_HNN = map_HNN / map_HNN.sum(-1, keepdim=True).clamp(min=1e-12)
    return float(nonlocality(map_HNN, places[0]).mean())


def tokens_of(value: Tensor) -> Tensor | None:
    """The tokens of an activation, B x N x D; None where it has none."""
    if value.ndim == 3:
        return value
    if value.ndim != 4:
        return None
    channels_first = value.shape[2] == value.shape[3] and value.shape[1] != value.shape[2]
    return value.flatten(2).mT if channels_first else value.flatten(1, 2)


@torch.no_grad()
def _stream(name: str, value: Tensor) -> Stream | None:
    tokens_BND = tokens_of(value)
    if tokens_BND is None or tokens_BND.shape[1] < 2:
        return None
    tokens_BND = tokens_BND[:4].float()
    count = tokens_BND.shape[1]
    unit_BND = nn.functional.normalize(tokens_BND, dim=-1)
    cosine = (count * unit_BND.mean(1).square().sum(-1) - unit_BND.square().sum(-1).mean(1)) / (count - 1)
    gram = tokens_BND @ tokens_BND.mT if count <= tokens_BND.shape[2] else tokens_BND.mT @ tokens_BND
    trace = gram.diagonal(dim1=1, dim2=2).sum(-1)
    rank = trace.square() / gram.square().sum((1, 2)).clamp(min=1e-30)
    return Stream(name, float(value.float().square().mean().sqrt()), float(cosine.mean()), float(rank.mean()))


@contextmanager
def watching(model: nn.Module, names: list[str], heads: list[str], grid: tuple[int, int] | None) -> Iterator[Watched]:
    """Watch attention everywhere, the inputs of these blocks, and of these classifiers, while the model runs."""
    found = Watched()
    watch, shapes = _Watch(grid, found), dict[str, torch.Size]()

    def first(inputs: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
        given = (*inputs, *named.values())
        return next((one for one in given if isinstance(one, Tensor) and one.is_floating_point()), None)

    def enter(name: str, inputs: tuple[Any, ...], named: dict[str, Any], has_weights: bool) -> None:
        given = first(inputs, named)
        found.called.append(name)
        watch.stack.append((name, tuple(given.shape) if given is not None and has_weights else ()))
        if given is None:
            return
        if name in heads:
            found.features.append(given.detach())
        if name in names and (stream := _stream(name, given.detach())):
            found.streams.append(stream)
            shapes[name] = given.shape

    def leave(name: str, out: Any) -> None:
        watch.stack.pop()
        out = out[0] if isinstance(out, tuple | list) and out else out
        if name in shapes and isinstance(out, Tensor) and out.shape == shapes[name]:
            last = next(one for one in reversed(found.streams) if one.name == name)
            last.after = float(out.detach().float().square().mean().sqrt())

    with ExitStack() as stack:
        for name, module in model.named_modules():
            weighty = any(True for _ in module.parameters())
            entered = module.register_forward_pre_hook(
                lambda _, inputs, named, name=name, weighty=weighty: enter(name, inputs, named, weighty),
                with_kwargs=True,
            )
            left = module.register_forward_hook(lambda _, __, out, name=name: leave(name, out))
            stack.callback(entered.remove)
            stack.callback(left.remove)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_Softmaxes(watch))
        yield found
