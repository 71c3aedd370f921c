"""Compatibility of base and method with a model. Imports torch and timm only to ask."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import Field

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.foreign import contained

if TYPE_CHECKING:
    from torch import nn


class Fit(Frozen):
    """The answer."""

    base: InitializerSpec
    method: InitializerSpec | None
    misfit: str
    """Reason why base or method do not fit the model; empty where they do."""
    sources: dict[str, str] = Field(default_factory=dict)
    """The hash of the source file of each initialiser, by name: what a record has as `environment.initializers`."""


def fit(model: BaseModelSpec, base: Mapping[str, Any], method: Mapping[str, Any] | None) -> Fit:
    """Base and method with their defaults filled in, and whether they fit the model.

    To ask, torch and timm are imported and the model is built without values.

    Raises:
        VitinitError: no such initialiser, or a parameter that it does not take.
    """

    parts = resolve_initializer(base, "base"), resolve_initializer(method, "method") if method else None
    return Fit(base=parts[0], method=parts[1], misfit=misfit(model, *parts), sources=sources(*parts))


def resolve_initializer(named: Mapping[str, Any], kind: Any) -> InitializerSpec:
    """An InitializerSpec with defaults filled in, so that the run's identity does not depend on them.

    Only parameters that came later (`Initializer.later`) are left out at their default.
    """
    from vitinit.initializers import registry

    params = {key: value for key, value in named.items() if key != "name"}
    initializer = registry.build(str(named.get("name")), params, kind)
    return InitializerSpec(name=str(named["name"]), params=initializer.recorded_params())


def sources(base: InitializerSpec, method: InitializerSpec | None) -> dict[str, str]:
    """The hash of the source file of each initialiser, those inside another (`of`) too, by name."""
    from vitinit.initializers import registry

    return registry.source_hashes(name for part in (base, method) if part for name in part.names())


def misfit(model: BaseModelSpec, base: InitializerSpec, method: InitializerSpec | None) -> str:
    """Return why base or method do not fit the model; empty where they do. Nothing is allocated or trained.

    It calls the model as tables do, by its family, and not by the class that the library has for several.
    """
    try:
        for part, kind in ((base, "base"), (method, "method")):
            if part is not None:
                _check_fit(model, part.model_dump_json(), kind)
    except VitinitError as error:
        return str(error) if model.by_name else str(error).replace(type(empty_model(model)).__name__, model.label)
    return ""


@cache
def _check_fit(model: BaseModelSpec, initializer_json: str, kind: Any) -> None:
    from vitinit.initializers import registry

    part = InitializerSpec.model_validate_json(initializer_json)
    with contained(f"{kind} {part.name!r}"):
        registry.build(part.name, part.params, kind).check(empty_model(model))


def ours(model: BaseModelSpec, part: InitializerSpec, kind: Any) -> str:
    """Return the part of an initialiser that is in no paper on this model, which it fits; empty where there is none."""
    from vitinit.initializers import registry

    with contained(f"{kind} {part.name!r}"):
        return registry.build(part.name, part.params, kind).ours(empty_model(model))


@lru_cache(maxsize=16)
def empty_model(model: BaseModelSpec) -> nn.Module:
    """Shapes without values. `check` only looks at it, so all rows of a grid share it: building takes the longest."""
    from vitinit.benchmark.models.build import without_values

    return without_values(model, classes=10)
