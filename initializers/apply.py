"""Base, then method, on a copy of a model: checked, applied, audited."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vitinit.initializers.adapters import families
from vitinit.initializers.attention import attention_layers, shared_parameters
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import contained
from vitinit.initializers.registry import Aim, Initializer, Job, changed_by
from vitinit.initializers.transaction import named_tensors


@dataclass(frozen=True)
class Meant:
    """Method that `vitinit.initialize` has put on a model, and what it means to be so."""

    name: str
    tensors: set[str]
    """Those that it has changed or wants to stay untrained."""


METHODS: WeakKeyDictionary[nn.Module, Meant] = WeakKeyDictionary()
"""By model, the last method: its own aim is no warning of `vitinit.check`."""


@dataclass(frozen=True)
class Applied:
    """Result of applying base and method."""

    changed: list[list[str]]
    """Names of the parameters and buffers that each of them changed."""
    aim: Aim | None
    """Attention that the last of them aims at."""
    seconds: float
    shared: list[list[str]]
    """Paths of the parameters that changed and that several modules share: they were set once."""


def apply(
    model: nn.Module, parts: Sequence[Initializer], stream: Callable[[str], torch.Generator], job: Job
) -> Applied:
    """Check all parts, then apply them one after the other, to the copy that `scratch` gives.

    Raises:
        VitinitError: a part does not fit the model, or changed a parameter that it does not name, or one that several
            modules share and need differently, or replaced more than values, or left a value that is not finite.
    """
    for one, other in combinations(families(model), 2):
        pairs = zip(named_tensors(one.model).items(), named_tensors(other.model).items(), strict=False)
        if all(name == also and torch.equal(a, b) for (name, a), (also, b) in pairs):
            raise VitinitError(
                f"{type(model).__name__} holds equal models ({one.path!r}, {other.path!r}), as student and teacher: "
                "initialise one of them, then copy it"
            )
    for part in parts:
        with contained(part.described):
            part.check(model)
    seconds, changed = 0.0, list[list[str]]()
    aim: Tensor | Aim | None = None
    for part in parts:
        before, held = {name: value.clone() for name, value in named_tensors(model).items()}, _made_of(model)
        start = time.perf_counter()
        try:
            with contained(part.described):
                aim = part.apply(model, stream(f"init/{part.kind}"), job)
        except (RuntimeError, OverflowError) as error:
            if not isinstance(error, OverflowError) and not re.search("^linalg|without overflow", str(error)):
                raise
            raise VitinitError(
                f"{part.described}: its numbers leave the range of float32 ({error}): give smaller parameters, or "
                "weights that are finite"
            ) from error
        seconds += time.perf_counter() - start
        model.float()  # a plug-in may have replaced a parameter by one of another type
        differing = [name for name, _ in held.items() ^ _made_of(model).items()]
        if differing:
            raise VitinitError(
                f"{part.described} adds, removes or replaces {min(differing)!r}: a method sets values of parameters "
                "and buffers in place, as by weight.copy_(values)"
            )
        changed.append(changed_by(part, model, before))
        for paths in shared_parameters(model) if part.kind == "method" else ():
            if not set(paths).isdisjoint(changed[-1]):
                raise VitinitError(
                    f"{part.described} would set {paths[0]!r}, which {', '.join(map(repr, paths[1:]))} shares: it is "
                    "made for layers with parameters of their own"
                )
    every = {name for names in changed for name in names}
    if isinstance(aim, Tensor):
        aim = Aim(aim.expand(len(attention_layers(model)), *aim.shape))
    if aim is not None and not aim.targets_LHNN.any():
        raise VitinitError(f"{parts[-1].described} returns attention targets that are all 0: return None")
    return Applied(changed, aim, seconds, [paths for paths in shared_parameters(model) if every & set(paths)])


def _made_of(model: nn.Module) -> dict[str, Any]:
    """Return classes of modules and shapes of tensors by name: what no method changes."""
    found: dict[str, Any] = {name: type(module) for name, module in model.named_modules(remove_duplicate=False)}
    for each in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        found |= {name: tuple(tensor.shape) for name, tensor in each}
    return found
