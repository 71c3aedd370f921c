"""Where an error comes from: the line of ours, or of the user's, that a reader has to look at."""

from __future__ import annotations

import sysconfig
import traceback
from importlib.util import find_spec
from pathlib import Path

LIBRARIES = ("torch", "torchvision", "numpy", "scipy", "sklearn", "timm", "PIL", "pydantic")


def place(error: BaseException) -> str:
    """`file.py:LINE` of the innermost frame outside the standard library and `LIBRARIES`; else empty."""
    specs = [spec for name in LIBRARIES if (spec := find_spec(name))]
    libraries = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
    standard = sysconfig.get_path("stdlib")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        of_python = file.is_relative_to(standard) and "site-packages" not in file.parts  # which may lie inside it
        if file.is_absolute() and not of_python and not any(map(file.is_relative_to, libraries)):
            return f"{file.name}:{frame.lineno}"
    return ""
