"""Doors that refuse: each takes the input of a case of `cases.yaml` and returns the exit code and the line.

`python -m tests.refusals.doors` writes what is said today into `cases.yaml`: add a case by its `input` alone.
"""

import copy
import io
import json
import os
import re
import sys
import tempfile
from functools import reduce
from pathlib import Path

import yaml
from PIL import Image

from tests.golden.cli import ROOT, call
from tests.sealing import sealed

RECORD = min((ROOT / "results/reference/small").glob("*.json"))
CASES = Path(__file__).with_name("cases.yaml")
TABLE = yaml.safe_load(CASES.read_text(encoding="utf-8"))
FILES = TABLE.pop("files")
SOUND = yaml.safe_load(FILES["sound.yaml"])
"""A grid that can be carried out: cases say what is otherwise."""


def command(line):
    """Run one line of a shell."""
    error = io.StringIO()
    code = call(line, io.StringIO(), error)
    return code, error.getvalue().removesuffix("\n")


def grid(changes):
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


def profile(text):
    """Show what jobs of a profile would be."""
    Path("profile.yaml").write_text(text)
    return command("vitinit run smoke --dry-run --executor slurm --profile profile.yaml")


def record(changes):
    """Check a folder with one record: its text, or what differs from a committed one, by path."""
    if isinstance(changes, dict):
        content = json.loads(RECORD.read_bytes())
        del content["digest"]
        for path, value in changes.items():
            *outer, last = [int(key) if key.isdigit() else key for key in path.split(".")]
            reduce(lambda part, key: part[key], outer, content)[last] = value
        changes = sealed(content).decode()
    Path("results/local/small").mkdir(parents=True)
    Path("results/local/small", RECORD.name).write_text(changes)
    said = io.StringIO()
    code = call("vitinit store check", said, said)
    return code, next(line for line in said.getvalue().splitlines() if line.startswith("invalid: "))


def folder(files):
    """Train on a folder of images: how many there are in each of its folders, or the text of a file."""
    for name, content in files.items():
        path = Path("images", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
            continue
        path.mkdir(exist_ok=True)
        for number in range(content):
            Image.new("RGB", (8, 8), (number, len(name), ord(name[-1]))).save(path / f"{number}.png")
    Path("images.yaml").write_text(yaml.safe_dump(SOUND).replace("digits", "folder:images"))
    return command("vitinit run images.yaml --device cpu --executor inline --set recipe.batch_size=2")


def python(expression):
    """Evaluate a call of the package's own functions; `model` builds one of the zoo, which stays bit for bit."""
    import torch
    from torch import nn

    import vitinit.initializers.methods.impulse_solvers
    from tests.initializers import zoo

    built = []

    def model(name):
        made = zoo.build(name)
        built.append((made, copy.deepcopy(made.state_dict())))
        return made

    try:
        eval(expression, {"vitinit": vitinit, "torch": torch, "nn": nn, "model": model})
    except vitinit.VitinitError as error:
        for made, before in built:
            for name, value in made.state_dict().items():
                assert torch.equal(value, before[name].to(value.dtype))
        return 2, str(error)
    return 0, ""


DOORS = {
    "grid": grid,
    "profile": profile,
    "command": command,
    "record": record,
    "folder": folder,
    "python": python,
}


def answer(door, given):
    """Try a door, from a folder with `FILES` and the committed records; `exit` is said where it is not 2."""
    argv, place = sys.argv, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "results").mkdir()
        (Path(folder) / "results/reference").symlink_to(ROOT / "results/reference")
        for name, text in FILES.items():
            (Path(folder) / name).write_text(text)
        os.chdir(folder)
        try:
            code, said = DOORS[door](given)
        finally:
            os.chdir(place)
    sys.argv = argv
    said = re.sub(
        r"(available: [^,;]+, [^,;]+)(, [^,;]+){8,}", r"\1, ...", said
    )  # long lists change with what there is
    # newer Pythons say more
    said = re.sub(r"(keyword argument '\w+'|JSON compliant)(\. Did you mean '\w+'\?|: [\w-]+)", r"\1", said)
    return {"expect": said.replace(os.path.realpath(folder), "HERE"), **({} if code == 2 else {"exit": code})}


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such."""


def _text(dumper, text):
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)

if __name__ == "__main__":
    said = {door: [{"input": case["input"], **answer(door, case["input"])} for case in TABLE[door]] for door in TABLE}
    layout = {"sort_keys": False, "default_flow_style": None, "width": 10**6, "allow_unicode": True}
    CASES.write_text(yaml.dump({"files": FILES, **said}, Dumper=_Dumper, **layout), encoding="utf-8")
