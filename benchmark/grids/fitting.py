"""Compatibility of base and method with a model. Imports torch and timm only to ask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from vitinit.benchmark.models.build import CLASSES, without_values
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.spec import InitializerSpec, model_spec
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from torch import nn


def fitted(model: Mapping[str, Any], base: Mapping[str, Any], method: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """Return base and method with defaults filled in, why they do not fit the model, and their sources; all as JSON."""
    spec, first = model_spec(model), resolve_initializer(base, "base")
    second = resolve_initializer(method, "method") if method else None
    return first.model_dump(), second and second.model_dump(), misfit(spec, first, second), sources(first, second)


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
