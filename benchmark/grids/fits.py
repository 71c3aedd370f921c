"""Compatibility of initialisers with model families, by the smallest preset of each, as a plan asks every model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.grids import fitting
from vitinit.benchmark.models import registry as families
from vitinit.benchmark.models.family import BaseModelSpec
from vitinit.benchmark.models.named import CLASSES, NamedModel
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError

SHOWN = 3
"""So many names of parameters are listed."""
IMAGE_SIZE, PATCH_SIZE = 32, 4
UNDER = InitializerSpec(name="trunc_normal")
"""The base that methods are asked over."""


class Fit(Frozen):
    """Compatibility of one initialiser, at its defaults, with one family."""

    misfit: str = ""
    """Reason why it does not fit, with the family's name for the model; empty where it does."""
    ours: str = ""
    """Part of it that is in no paper; empty where there is none."""
    condition: str = ""
    """On what it depends, where the defaults do not say."""


Fits = dict[Literal["base", "method"], dict[str, dict[str, Fit]]]
"""Of base and method, by initialiser and `arch`."""


def fits() -> Fits:
    """Return what fits what, of every initialiser and every family with a preset."""
    models = {arch: spec for arch in families.described() if (spec := smallest(arch))}
    kinds: tuple[Literal["base", "method"], ...] = "base", "method"
    return {
        kind: {name: {arch: verdict(model, name, kind) for arch, model in models.items()} for name in names}
        for kind, names in ((kind, registry.names(kind)) for kind in kinds)
    }


def smallest(arch: str) -> BaseModelSpec | None:
    """The preset with the fewest parameters, at 32 pixels with patch 4; None where a family has no preset."""
    presets = ({"arch": arch, **fields} for fields in families.get(arch).presets.values())
    size = {"image_size": IMAGE_SIZE, "patch_size": PATCH_SIZE}
    return min((families.spec_of({**fields, **size}) for fields in presets), key=lambda spec: spec.size, default=None)


def verdict(model: BaseModelSpec, name: str, kind: Literal["base", "method"]) -> Fit:
    """Return the compatibility of an initialiser at its defaults with a model, or the parameter that it lacks."""
    if condition := registry.get(name).condition:
        return Fit(condition=condition)
    try:
        part = fitting.resolve_initializer({"name": name}, kind)
    except VitinitError as error:
        return Fit(misfit=str(error))
    misfit = fitting.misfit(model, *((part, None) if kind == "base" else (UNDER, part)))
    return Fit(misfit=misfit, ours="" if misfit else fitting.ours(model, part, kind))


def summary(model: NamedModel, bases: Iterable[InitializerSpec]) -> str:
    """Return in one line the size of a model by name, the methods that fit, and what bases leave to its library."""
    from vitinit.initializers.whole_model import WholeModel

    said = [
        f"{model.describe()} at {model.image_size} px: {model.size / 1e6:.3g} M parameters, "
        f"{model.forward_operations(CLASSES) / 1e9:.3g} GFLOP a forward pass"
    ]
    verdicts = {name: verdict(model, name, "method") for name in registry.names("method")}
    fit = [name for name, one in verdicts.items() if not (one.misfit or one.condition)]
    said.append(f"methods that fit: {', '.join(fit) or 'none'}")
    for part in {part.model_dump_json(): part for part in bases}.values():
        base, empty = registry.build(part.name, part.params, "base"), fitting.empty_model(model)
        left = base.without_rule(empty) if isinstance(base, WholeModel) else []
        if left:
            shown = ", ".join(left[:SHOWN]) + (", ..." if len(left) > SHOWN else "")
            many = f"{len(left)} of {len(list(empty.parameters()))} parameters"
            said.append(f"{part.name} leaves {many} as the library builds them ({shown})")
    return "; ".join(said)
