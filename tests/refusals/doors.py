"""Doors that refuse: each takes the input of a case of `cases.yaml` and returns the exit code and the line.

`python -m tests.refusals.doors` writes what is said today into `cases.yaml`: add a case by its `input` alone.
"""

from __future__ import annotations

import copy
import io
import os
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import yaml

CASES = Path(__file__).with_name("cases.yaml")
TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load(CASES.read_text(encoding="utf-8"))
FILES: dict[str, str] = TABLE.pop("files")  # type: ignore[assignment]
SOUND: dict[str, Any] = {
    "title": "One run",
    "rows": {"Kaiming uniform": {"base": "kaiming_uniform"}},
    "blocks": [
        {
            "datasets": ["digits"],
            "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 1},
            "recipe": {"name": "small", "epochs": 2},
            "seeds": [0],
        }
    ],
}
"""A grid that can be carried out: cases say what is otherwise."""


def command(line: str) -> tuple[int, str]:
    """Run one line of a shell in this process: `vitinit ...` or `python -m ...`."""
    words, printed, code = shlex.split(line), io.StringIO(), 0
    with redirect_stdout(io.StringIO()), redirect_stderr(printed):
        try:
            if words[0] == "vitinit":
                sys.argv = words
                (entry,) = entry_points(group="console_scripts", name="vitinit")
                entry.load()()
            else:
                sys.argv = words[2:]
                runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, printed.getvalue().removesuffix("\n")


def grid(changes: dict[str, Any] | str) -> tuple[int, str]:
    """Plan a grid: its text, or what differs from `SOUND`; fields of the block by their own names."""
    if isinstance(changes, dict):
        content = copy.deepcopy(SOUND)
        block = content["blocks"][0]
        for name, value in changes.items():
            if name in ("model", "recipe"):
                block[name] |= value
            elif name in ("datasets", "seeds", "sweep"):
                block[name] = value
            else:
                content[name] = value
        changes = yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
    Path("grid.yaml").write_text(changes, encoding="utf-8")
    return command("vitinit plan grid.yaml")


def profile(text: str) -> tuple[int, str]:
    """Show what jobs of a profile would be."""
    Path("profile.yaml").write_text(text)
    return command("vitinit run smoke --dry-run --executor slurm --profile profile.yaml")


def python(expression: str) -> tuple[int, str]:
    """Evaluate a call of the package's own functions."""
    import torch
    from torch import nn

    import vitinit
    from tests.initializers import zoo

    try:
        eval(expression, {"vitinit": vitinit, "torch": torch, "nn": nn, "model": zoo.build})
    except vitinit.VitinitError as error:
        return 2, str(error)
    return 0, ""


DOORS: dict[str, Callable[[Any], tuple[int, str]]] = {
    "grid": grid,
    "profile": profile,
    "command": command,
    "python": python,
}


def answer(door: str, given: Any) -> dict[str, Any]:
    """Try a door, from a folder with `FILES`; `exit` is said where it is not 2."""
    argv, place = sys.argv, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text)
        os.chdir(folder)
        code, said = DOORS[door](given)
        os.chdir(place)
    sys.argv = argv
    said = re.sub(
        r"(available: [^,;]+, [^,;]+)(, [^,;]+){8,}", r"\1, ...", said
    )  # long lists change with what there is
    return {"expect": said.replace(os.path.realpath(folder), "HERE"), **({} if code == 2 else {"exit": code})}


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)

if __name__ == "__main__":
    said = {door: [{"input": case["input"], **answer(door, case["input"])} for case in TABLE[door]] for door in TABLE}
    layout = {"sort_keys": False, "default_flow_style": None, "width": 10**6, "allow_unicode": True}
    CASES.write_text(yaml.dump({"files": FILES, **said}, Dumper=_Dumper, **layout), encoding="utf-8")
