"""Provenance: which code, which libraries, which machine."""

from __future__ import annotations

import platform
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("vitinit", "torch", "torchvision", "timm", "numpy", "pillow", "scikit-learn")


@cache
def code() -> dict[str, Any]:
    """Git commit, and whether code or grids differ from it (new files too); None where this is no git checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    status = git("status", "--porcelain", "--", ":/*.py", ":/*.yaml")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


def environment(device: torch.device) -> dict[str, Any]:
    """What a record says about where its numbers come from."""
    cuda = device.type == "cuda"
    return {
        **code(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": _processor(),
        "cuda": torch.version.cuda if cuda else None,
        "gpu": torch.cuda.get_device_name(device) if cuda else None,
        "argv": ["vitinit", *sys.argv[1:]],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
