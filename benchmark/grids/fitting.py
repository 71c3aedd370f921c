"""Compatibility of base and method with a model. Imports torch and timm only to ask."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.models.build import CLASSES, without_values
from vitinit.benchmark.models.registry import BaseModelSpec
from vitinit.benchmark.spec import InitializerSpec, model_spec
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import GROUPS

if TYPE_CHECKING:
    from torch import nn


def fitted(model: Mapping[str, Any], base: Mapping[str, Any], method: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """Return base and method with defaults filled in, why they do not fit, their sources, remarks; all as JSON."""
    from vitinit.initializers.whole_model import set_alike

    spec, first = model_spec(model), resolve_initializer(base, "base")
    second = resolve_initializer(method, "method") if method else None
    why = misfit(spec, first, second)
    remarks = [] if why else set_alike(empty_model(spec))
    return first.model_dump(), second and second.model_dump(), why, sources(first, second), remarks


def resolve_initializer(named: Mapping[str, Any], kind: Any = None) -> InitializerSpec:
    """An InitializerSpec with defaults filled in, so that the run's identity does not depend on them."""
    from vitinit.initializers import registry

    name = str(named["name"])
    initializer = registry.build_named({**named, "name": name}, kind)
    return InitializerSpec(name=name, params=initializer.model_dump(mode="json"))


def sources(base: InitializerSpec, method: InitializerSpec | None) -> dict[str, str]:
    """The hash of the source file of each initialiser, those inside another (`of`) too, by name."""
    from vitinit.initializers import registry

    return registry.source_hashes(name for initializer in (base, method) if initializer for name in initializer.names())


def misfit(model: BaseModelSpec, base: InitializerSpec, method: InitializerSpec | None) -> str:
    """Return why base or method do not fit the model; empty where they do. Nothing is allocated or trained.

    It calls the model as tables do, by its family, and not by the class that the library has for several.
    """
    try:
        for initializer in filter(None, (base, method)):
            _check_fit(model, initializer.model_dump_json())
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


# --- what takes torch to find out, kept on disk: who plans a grid again imports none ---

ROOT = Path(__file__).parents[2]


def fact(find_out: Callable[..., Any], *given: Any) -> Any:
    """Return what a function finds out of JSON values: once for this code and these libraries.

    What lies in files and packages of others is found out anew, and all of it where torch is imported anyway.
    """
    key, code = f"{find_out.__name__} {given!r}", _code()
    if not code or re.search(r"\w:\w", key):
        return find_out(*given)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(home, "vitinit", f"facts-{code}", f"{sha256(key.encode()).hexdigest()[:16]}.json")
    with suppress(OSError, ValueError):
        return json.loads(path.read_bytes())
    answer = find_out(*given)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(answer).encode())
    return answer


@cache
def _code() -> str:
    """Return a hash of the code and libraries that facts depend on; empty where torch or a package may tell more."""
    if "torch" in sys.modules or any(entry_points(group=group) for group in GROUPS):
        return ""
    digest = sha256(f"{ROOT} {sys.version} {version('torch')} {version('timm')}".encode())
    # what a fit depends on; what is recorded or read, and how, is not in it
    for pattern in ("initializers/**/*", "benchmark/models/**/*", "benchmark/grids/*.py", "benchmark/*.*"):
        for file in sorted(ROOT.glob(pattern)):
            if file.is_file() and file.suffix != ".pyc":
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
