"""Initialisations for anyone's Vision Transformer.

Example::

    import timm, vitinit

    model = timm.create_model("vit_tiny_patch16_224")
    print(vitinit.initialize(model, "mimetic", base="kaiming_uniform", seed=0))

What this module, `vitinit.plugins` and `vitinit.adapters` list in `__all__` is public and stays; everything else may
change. It needs torch and pydantic, and no
library of models but the one that the model is from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from vitinit.initializers.check import Check, Finding, check
    from vitinit.initializers.initialize import Change, Report, initialize
    from vitinit.initializers.registry import Known, catalogue
    from vitinit.results import Run, epochs, load, records
    from vitinit.studies import StudyResults, run, study

__version__ = "0.1.0"
__all__ = [
    "Change",
    "Check",
    "Finding",
    "Known",
    "Report",
    "Run",
    "StudyResults",
    "VitinitError",
    "catalogue",
    "check",
    "epochs",
    "initialize",
    "load",
    "records",
    "run",
    "study",
]
HOMES = {
    "Change": "initializers.initialize",
    "Check": "initializers.check",
    "Finding": "initializers.check",
    "Known": "initializers.registry",
    "Report": "initializers.initialize",
    "Run": "results",
    "StudyResults": "studies",
    "catalogue": "initializers.registry",
    "check": "initializers.check",
    "epochs": "results",
    "initialize": "initializers.initialize",
    "load": "results",
    "records": "results",
    "run": "studies",
    "study": "studies",
}
"""Modules of the public names."""


def lazy(homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` of a module, which imports a name when it is first used, for torch takes seconds.

    Args:
        homes: by name its module in this package, or `module:attribute`.
    """

    def get(name: str) -> Any:
        if name in homes:
            module, _, attribute = homes[name].partition(":")
            return getattr(import_module(f"vitinit.{module}"), attribute or name)
        if name in ("adapters", "plugins"):
            return import_module(f"vitinit.{name}")
        raise AttributeError(f"vitinit has no public name {name!r}")

    return get


__getattr__ = lazy(HOMES)
