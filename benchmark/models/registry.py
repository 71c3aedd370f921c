"""Registry of model families: those of the files in this folder, and of installed packages.

A package names its own in the entry point group `vitinit.models`, as package.module:CLASS. Imports no torch.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_origin

from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.models.named import NamedModel
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import MODELS, Registry, concrete


def _is_family(value: object) -> bool:
    """Return True for a concrete family, False for a shared base class."""
    return concrete(BaseModelSpec)(value) and get_origin(value.model_fields["arch"].annotation) is Literal  # type: ignore[attr-defined]


REGISTRY: Registry[type[BaseModelSpec]] = Registry(
    "arch",
    (__package__,),
    group=MODELS,
    wanted="a model family: a ModelSpec with `arch: Literal[NAME] = NAME`, and all that it asks defined",
    accepts=_is_family,
    collect=True,
    name=lambda family: family.name(),
)
families = REGISTRY.by_name
"""All families by `arch`, in the order of the names."""


def by_name(fields: Mapping[str, Any]) -> type[NamedModel] | None:
    """The family of models by name that fields of a grid are of, by the field that holds the name.

    Raises:
        VitinitError: there are two such fields.
    """
    named = [family for family in families().values() if issubclass(family, NamedModel) and family.key in fields]
    if len(named) > 1:
        raise VitinitError(f"model: {' and '.join(family.key for family in named)} both name one; give one of them")
    return named[0] if named else None


def presets() -> dict[str, dict[str, Any]]:
    """Named sets of fields of all families; a grid adds image_size and patch_size, and may override any field."""
    return {
        name: {"arch": arch, **fields} for arch, family in families().items() for name, fields in family.presets.items()
    }


def family_of(fields: Mapping[str, Any]) -> type[BaseModelSpec]:
    """The family that the field `arch` names.

    Raises:
        VitinitError: there is no such family.
    """
    arch = fields.get("arch", "vit")
    if not isinstance(arch, str):
        raise VitinitError(f"arch is the name of a model family: {', '.join(families())}")
    return REGISTRY.get(arch)
