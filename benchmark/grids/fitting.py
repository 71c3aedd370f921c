"""Compatibility of base and method with a model. Imports torch and timm only to ask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from vitinit.benchmark.grids import facts
from vitinit.benchmark.models.build import CLASSES, without_values
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from torch import nn


def fitted(
    model: BaseModelSpec, base: Mapping[str, Any], method: Mapping[str, Any] | None
) -> tuple[InitializerSpec, InitializerSpec | None, str, dict[str, str]]:
    """Return base and method of a row with defaults filled in, why they do not fit the model, and their sources.

    What is known of our own initialisers and of models of ours and timm is not asked again.
    """
    key = facts.key_of(model.model_dump(mode="json"), base, method)
    if kept := facts.recall(key):
        first, second = (part and InitializerSpec.model_validate(part) for part in kept[0])
        return first, second, kept[1], kept[2]
    from vitinit.initializers import registry

    first = resolve_initializer(base, "base")
    second = resolve_initializer(method, "method") if method else None
    reason, hashes = misfit(model, first, second), sources(first, second)
    parts = first, second
    classes = [type(model), *(registry.get(name) for part in parts if part for name in part.names())]
    if model.arch != "python" and all(cls.__module__.startswith("vitinit.") for cls in classes):
        facts.keep(key, [[part and part.model_dump() for part in parts], reason, hashes])
    return first, second, reason, hashes


def resolve_initializer(named: Mapping[str, Any], kind: Any = None) -> InitializerSpec:
    """An InitializerSpec with defaults filled in, so that the run's identity does not depend on them."""
    from vitinit.initializers import registry

    name = str(named["name"])
    initializer = registry.build_named({**named, "name": name}, kind)
    return InitializerSpec(name=name, params=initializer.model_dump(mode="json"))


def sources(base: InitializerSpec, method: InitializerSpec | None) -> dict[str, str]:
    """The hash of the source file of each initialiser, those inside another (`of`) too, by name."""
    from vitinit.initializers import registry

    return registry.source_hashes(name for part in (base, method) if part for name in part.names())


def misfit(model: BaseModelSpec, base: InitializerSpec, method: InitializerSpec | None) -> str:
    """Return why base or method do not fit the model; empty where they do. Nothing is allocated or trained.

    It calls the model as tables do, by its family, and not by the class that the library has for several.
    """
    try:
        for part in filter(None, (base, method)):
            _check_fit(model, part.model_dump_json())
    except VitinitError as error:
        return str(error) if model.by_name else str(error).replace(type(empty_model(model)).__name__, model.label)
    return ""


@cache
def _check_fit(model: BaseModelSpec, initializer_json: str) -> None:
    from vitinit.initializers import registry

    spec = InitializerSpec.model_validate_json(initializer_json)
    registry.build(spec.name, spec.params).check(empty_model(model))


@cache
def empty_model(model: BaseModelSpec) -> nn.Module:
    """Shapes without values. `check` only looks at it, so all rows of a grid share it: building takes the longest."""
    return without_values(model, CLASSES)
