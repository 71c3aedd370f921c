"""Registry of model families: those of the files in this folder, and of installed packages.

A package names its own in the entry point group `vitinit.models`, as package.module:CLASS. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_origin

from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.models.named import NamedModel
from vitinit.initializers.errors import VitinitError, unknown_name
from vitinit.initializers.plugins import MODELS, Registry

DEFAULT = "vit"
"""Family of a spec that names no `arch`."""


def _is_family(value: object) -> bool:
    """Return True for a concrete family, False for a shared base class."""
    is_spec = isinstance(value, type) and issubclass(value, BaseModelSpec)
    return is_spec and get_origin(value.model_fields["arch"].annotation) is Literal  # type: ignore[attr-defined]


def _check(family: type[BaseModelSpec], where: str) -> None:
    for attribute in ("label", "kind"):
        if not hasattr(family, attribute):
            raise VitinitError(f"model family {where} needs the class variable {attribute!r}")
    if family.__abstractmethods__:
        raise VitinitError(f"model family {where} does not define {', '.join(sorted(family.__abstractmethods__))}")
    for other in REGISTRY.known.values():
        taken = [name for name in family.presets if name in other.presets]
        if taken and other.name() != family.name():
            first = f"{other.__module__}.{other.__qualname__}"
            raise VitinitError(f"two model presets are called {taken[0]!r}: in {first} and in {where}")


REGISTRY: Registry[type[BaseModelSpec]] = Registry(
    "arch",
    __package__,
    group=MODELS,
    wanted="a model family: a ModelSpec with `arch: Literal[NAME] = NAME`",
    accepts=_is_family,
    collect=True,
    check=_check,
    name=lambda family: family.name(),
)
get = REGISTRY.get


def families() -> dict[str, type[BaseModelSpec]]:
    """All families by `arch`, in the order of the names.

    Raises:
        BrokenFile: a file or a package cannot be imported, what it names is no family, or a name is there twice.
    """
    return REGISTRY.by_name()


def described() -> dict[str, type[BaseModelSpec]]:
    """All families but those of models by name: their models are described by fields."""
    return {name: family for name, family in families().items() if not family.by_name}


def by_name(fields: Mapping[str, Any]) -> str:
    """The family of models by name that fields of a grid are of, by the field that holds the name; empty if none."""
    keys = {family.key: name for name, family in families().items() if issubclass(family, NamedModel)}
    return next((name for key, name in keys.items() if key in fields), "")


def presets() -> dict[str, dict[str, Any]]:
    """Named sets of fields of all families; a grid adds image_size and patch_size, and may override any field."""
    return {
        name: {"arch": arch, **fields} for arch, family in families().items() for name, fields in family.presets.items()
    }


def spec_of(fields: Mapping[str, Any]) -> BaseModelSpec:
    """A spec of the family that `arch` names, from its fields or as a record holds them.

    Raises:
        VitinitError: there is no such family, or it has no such field.
        ValidationError: a value that a field cannot have.
    """
    if not all(isinstance(value, str | float | int | None) for value in fields.values()):
        return _new(fields)
    # Thousands of records share a few models. Not an lru_cache, for which 0.0 and -0.0 are the same.
    key = repr(fields)
    if key not in _known:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = _new(fields)
    return _known[key]


_known: dict[str, BaseModelSpec] = {}
MOST_KNOWN = 4096


def _new(fields: Mapping[str, Any]) -> BaseModelSpec:
    arch = fields.get("arch", DEFAULT)
    if not isinstance(arch, str):
        raise VitinitError(f"arch is the name of a model family: {', '.join(families())}")
    family = get(arch)
    for field, value in fields.items():
        if not family.has(field, value):
            error = unknown_name(f"field of a {family.label}", str(field), family.model_fields)
            owners = [other.label for other in families().values() if field in other.model_fields]
            raise VitinitError(f"{error}; a {' or '.join(owners)} has {field}") if owners else error
    return family.model_validate(dict(fields))
