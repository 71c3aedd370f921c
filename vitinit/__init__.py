"""Initialisations for anyone's Vision Transformer.

Example::

    import timm, vitinit

    model = timm.create_model("vit_tiny_patch16_224")
    print(vitinit.initialize(model, "mimetic", base="kaiming_uniform", seed=0))

Public is what the stubs `__init__.pyi`, `plugins.pyi` and `adapters.pyi` list: it stays; everything else may change. It
needs torch and pydantic, and no library of models but the one that the model is from.
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def public(file: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` of a module: what its stub imports is imported when it is first used.

    Torch takes seconds to import, and an installation without the benchmark has not all that the benchmark needs.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text())
    homes = {
        str(alias.asname): (str(node.module), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name in ("adapters", "plugins"):
            return import_module(f"vitinit.{name}")
        if name not in homes:
            raise AttributeError(f"vitinit has no public name {name!r}")
        module, attribute = homes[name]
        return getattr(import_module(module), attribute)

    return sorted(homes), get


__all__, __getattr__ = public(__file__)
