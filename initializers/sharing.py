"""Parameters that several modules share: which they are, and what may be set all the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torch import nn

from vitinit.initializers.adapter import Attention, found
from vitinit.initializers.adapters.registry import kind_of


def homes(model: nn.Module) -> dict[str, list[str]]:
    """Paths of every parameter that several modules share, or one module under several names, by the first of them."""
    paths: dict[int, list[str]] = defaultdict(list)
    for path, parameter in model.named_parameters(remove_duplicate=False):
        paths[id(parameter)].append(path)
    return {held[0]: held for held in paths.values() if len(held) > 1}


def conflict(model: nn.Module, changed: Iterable[str]) -> list[str]:
    """Paths of the first of the changed parameters that must be one thing for several modules; empty: there is none.

    One attention module in several places has its own parameters everywhere: what is right in one is right in all.
    """
    shared, changed = homes(model), set(changed)
    if not shared:
        return []
    roles: dict[str, set[object]] = defaultdict(set)  # by the path of a parameter: whose it is, and what for
    for path, module in model.named_modules(remove_duplicate=False):
        kind = kind_of(module)
        if isinstance(kind, Attention):
            for part in (kind.query, kind.key, kind.value, kind.proj):
                for name in (part.weight, part.bias):
                    if found(module, name) is not None:
                        at = f"{path}.{name}".lstrip(".")
                        roles[at].add((id(module), name))
    for paths in shared.values():
        users = {role for path in paths for role in roles.get(path, {path})}
        if changed & set(paths) and len(users) > 1:
            return paths
    return []


def repeated(model: nn.Module, module: nn.Module) -> bool:
    """Return True for a module that stands in several places of a model."""
    return sum(one is module for _, one in model.named_modules(remove_duplicate=False)) > 1
