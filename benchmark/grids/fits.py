"""Which initialiser fits which model family: the smallest preset of each is asked, as a plan asks every model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from vitinit.benchmark.fields import Frozen
from vitinit.benchmark.files import kept
from vitinit.benchmark.grids import fitting
from vitinit.benchmark.models import registry as families
from vitinit.benchmark.models.family import ModelSpec
from vitinit.benchmark.spec import InitializerSpec
from vitinit.initializers import plugins, registry
from vitinit.initializers.errors import VitinitError

KIND = "families"
IMAGE_SIZE, PATCH_SIZE = 32, 4
UNDER = InitializerSpec(name="trunc_normal")
"""The base that methods are asked over."""


class Verdict(Frozen):
    """Of one initialiser, at its defaults, on one family."""

    misfit: str = ""
    """Why it does not fit, with the family's name for the model; empty where it does."""
    ours: str = ""
    """What of it is in no paper; empty where nothing is."""
    condition: str = ""
    """On what it depends, where the defaults do not say."""


class Fits(Frozen):
    """All of them, by initialiser and `arch`."""

    base: dict[str, dict[str, Verdict]]
    method: dict[str, dict[str, Verdict]]


def fits() -> Fits:
    """Asked once, then kept until our code changes; where a package has families or initialisers, asked each time."""
    models = {arch: spec for arch in families.families() if (spec := smallest(arch))}
    only_ours = all(map(families.ours, models.values())) and not plugins.installed(plugins.INITIALIZERS)
    key = kept.key((*fitting.CODE, Path(__file__)), f"{KIND} {sorted(models)}") if only_ours else None
    kinds: tuple[Literal["base", "method"], ...] = "base", "method"

    def ask() -> Fits:
        return Fits.model_validate(
            {
                kind: {name: {arch: verdict(model, name, kind) for arch, model in models.items()} for name in names}
                for kind, names in ((kind, registry.names(kind)) for kind in kinds)
            }
        )

    return kept.answer(KIND, key, Fits, ask)


def smallest(arch: str) -> ModelSpec | None:
    """The preset with the fewest parameters, at 32 pixels with patch 4; None where a family has no preset."""
    presets = ({"arch": arch, **fields} for fields in families.get(arch).presets.values())
    size = {"image_size": IMAGE_SIZE, "patch_size": PATCH_SIZE}
    return min((families.spec_of({**fields, **size}) for fields in presets), key=lambda spec: spec.size, default=None)


def verdict(model: ModelSpec, name: str, kind: Literal["base", "method"]) -> Verdict:
    """What an initialiser at its defaults says of a model, or what it would have to be given."""
    if condition := registry.get(name).condition:
        return Verdict(condition=condition)
    try:
        part = fitting.resolve_initializer({"name": name}, kind)
    except VitinitError as error:
        return Verdict(misfit=str(error))
    misfit = fitting.misfit(model, *((part, None) if kind == "base" else (UNDER, part)))
    return Verdict(misfit=misfit, ours="" if misfit else fitting.ours(model, part, kind))
