"""`vitinit rank`: one method under the standard protocol, beside its base and its placebo."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from vitinit import initializers
from vitinit.benchmark.files.yaml_text import mapping
from vitinit.benchmark.grids.parts import HERE
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import Looks
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import InitializerSpec, RunSpec
from vitinit.initializers.errors import VitinitError, os_errors, unknown_name
from vitinit.initializers.plugins import FOLDERS, look_into_own_folders
from vitinit.runners.basics.environment import IMPORTED_FROM

TIERS = {"quick": "standard-mechanism", "standard": "standard"}
"""The grids whose setting a tier has, and beside whose records it stands."""
BESIDE = {"quick": ["catalogue-small"], "standard": []}
"""Other studies of the same model and length to stand beside."""
PROTOCOL = 1
"""Version of the standard protocol: the settings of `TIERS`, the base, the placebo."""

OURS = "import runpy, sys; sys.path[0] = {!r}; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
"""As `python -m`, which would look into the working folder first, and a user may have an `analysis.py` there."""

UNITS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Ranked:
    """The study that a method is compared in."""

    grid: Path
    """Written where the results are; its stem is the study."""
    looks: Looks
    """Its plan, and the looks of before."""
    useless: str
    """Reason why it has no placebo; empty where it has."""


def seconds(budget: str) -> float:
    """`90s`, `30m` or `2h` as seconds.

    Raises:
        VitinitError: it is something else.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if not match or not float(match[1]):
        raise VitinitError(f"--budget {budget!r}: write seconds, minutes or hours: 90s, 30m, 2h")
    return float(match[1]) * UNITS[match[2]]


def named(text: str, what: str = "METHOD") -> tuple[dict[str, Any], Path | None]:
    """A method or base as the command line names it, and the file that it lies in.

    `mimetic`, `{name: mimetic, parts: qk}`, `package.module:Class`, or `path/to/file.py:Class`. `what` is the argument.

    Raises:
        VitinitError: the file is not there, or cannot be a module.
    """
    fields = mapping(os.fsencode(text), Path(what)) if text.lstrip().startswith("{") else {"name": text}
    if not fields.get("name"):
        raise VitinitError(f"{what} needs a name: NAME, or {{name: NAME, ...}}")
    name = str(fields["name"])
    path, _, cls = name.rpartition(":")
    if not path.endswith(".py"):
        if ".py:" in path:
            raise VitinitError(f"{what} {name!r}: write path/to/file.py:Class")
        return fields, None
    file = Path(path).absolute()
    if not file.is_file():
        raise VitinitError(f"there is no file {path}; write path/to/file.py:Class")
    if not file.stem.isidentifier():
        raise VitinitError(f"{path}: {file.stem!r} cannot be imported; a module's name has letters, digits and '_'")
    text = file.read_text(encoding="utf-8", errors="replace")
    if not cls or not re.search(rf"\b{re.escape(cls)}\b", text):
        raise unknown_name(f"class of {path}", cls, re.findall(r"^class (\w+)", text, re.MULTILINE))
    if file.resolve().parent.parent == Path(initializers.__path__[0]).resolve():  # it is imported as one of ours
        return {**fields, "name": f"vitinit.initializers.{file.parent.name}.{file.stem}:{cls}"}, None
    return {**fields, "name": f"{file.stem}:{cls}"}, file


def _importable(files: list[Path]) -> None:
    """Make the folders of these files importable, here and in processes that are started.

    Raises:
        VitinitError: another module has the name of one of them, and would be taken for it.
    """
    before = filter(None, [os.environ.get(FOLDERS)])
    os.environ[FOLDERS] = os.pathsep.join(dict.fromkeys([*(str(file.parent) for file in files), *before]))
    look_into_own_folders()
    for file in files:
        found = importlib.util.find_spec(file.stem)
        if found is None or Path(found.origin or "").resolve() != file.resolve():
            other = found.origin or "in Python" if found else "nowhere"
            raise VitinitError(f"{file}: {file.stem!r} is another module ({other}); give the file another name")


def prepare(
    text: str,
    tier: str,
    base: str | None,
    model: str | None,
    results: Path,
    data: Path,
    worth: float | None = None,
) -> Ranked:
    """Write the grid of a method, its base and its placebo, in the setting of a tier, and the plan of looks beside it.

    The study is named after the method and a hash of all that the grid says, of the method's file, and of that of a
    base that is named: an edited method is another study, and no record of before is taken for one of it. (Of what
    these files import nothing is known.)

    Args:
        text: The method as the command line names it.
        tier: A key of `TIERS`.
        base: The base; None: kaiming_uniform.
        model: Changes to the tier's model, as YAML.
        results: Where grid and records go.
        data: Where datasets lie.
        worth: Smallest gain worth having, in points; None: that of the plan, 1 in a new one.

    Raises:
        VitinitError: the method or the base is not to be had or does not fit the model, the data set is not here, or
            the plan of this study has another smallest gain; nothing is written then.
    """
    method, file = named(text)
    below, file_of_base = named("kaiming_uniform" if base is None else base, "--base")
    _importable([each for each in (file, file_of_base) if each])
    own = HERE / "grids" / f"{TIERS[tier]}.yaml"
    plan = Looks(tier=tier, worth=worth or 1.0, seeds=list(range(looks.PLAN[-1][0])), plan=list(looks.PLAN))
    block = {**mapping(own.read_bytes(), own)["blocks"][0], "seeds": plan.seeds}
    if model is not None:
        block = {**block, "model": {**block["model"], **mapping(os.fsencode(model), Path("--model"))}}
    row = str(method["name"]).rpartition(":")[2]
    sources = {**_sources(method), **(_sources(below) if base else {})}
    its_base = below if base and base.lstrip().startswith("{") else below["name"]  # as it is hashed
    base_row, placebo = f"{row}'s base", f"{row}, placebo"
    content: dict[str, Any] = {
        "title": f"{row} under the standard protocol, version {PROTOCOL}, tier {tier}",
        "contrasts": [[row, base_row], [row, placebo]],
        "rows": {
            base_row: {"base": its_base},
            row: {"base": its_base, "method": method},
            placebo: {"base": its_base, "method": {"name": "placebo", "of": method, "keep": "spectrum"}},
        },
        "blocks": [block],
    }
    useless = _checked(content, data)
    if useless:
        del content["rows"][placebo], content["contrasts"][1]
    digest = hashlib.sha256(json.dumps([content, sources], sort_keys=True).encode())
    grid = results / f"rank-{re.sub(r'[^A-Za-z0-9_]', '_', row)}-{digest.hexdigest()[:8]}.yaml"
    folder = results / grid.stem
    before = looks.read(folder)
    if before and worth not in (None, before.worth):
        raise VitinitError(
            f"--worth {worth:g}: {folder} was planned with {before.worth:g} before its first run, and no second rule "
            "may look at its seeds"
        )
    with os_errors(f"cannot write {grid}"):
        results.mkdir(parents=True, exist_ok=True)
        _write(grid, content)
    if before is None:
        looks.write(folder, plan)
    return Ranked(grid, before or plan, useless)


def _write(grid: Path, content: dict[str, Any]) -> None:
    grid.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")


def _sources(initializer: Mapping[str, Any]) -> dict[str, str]:
    """Hashes of the files of an initialiser's class, and of the one that it is made of, by name."""
    from vitinit.initializers import registry

    if initializer.get("name") is None:
        return {}
    unchecked = InitializerSpec.model_construct(name=str(initializer.get("name")), params=dict(initializer))
    names = unchecked.names()
    for name in names:
        if name.endswith(".py"):
            raise VitinitError(f"{name}: write {name}:CLASS, the class in it")
    return registry.source_hashes(names)


def _checked(content: dict[str, Any], data: Path) -> str:
    """Return why a placebo would say nothing; empty where it does.

    Raises:
        VitinitError: the study could not be carried out.
    """
    from vitinit.benchmark.datasets import registry
    from vitinit.benchmark.grids.fitting import resolve_initializer
    from vitinit.benchmark.grids.grid import load

    with TemporaryDirectory() as folder:
        draft = Path(folder) / "rank.yaml"
        *rows, (_, placebo) = content["rows"].items()
        _write(draft, {**content, "rows": dict(rows), "contrasts": content["contrasts"][:1]})
        cells = load(str(draft), seeds=content["blocks"][0]["seeds"][:1]).cells
    if misfits := [cell.misfit for cell in cells if cell.misfit]:
        raise VitinitError(misfits[0])
    for cell in cells:
        if reason := registry.unavailable(cell.spec.dataset, data):
            raise VitinitError(f"the standard protocol needs {cell.spec.dataset.name}, and {reason}")
    _, method = (cell.spec for cell in cells)
    without = method.model_copy(update={"method": resolve_initializer(placebo["method"], "method")})
    try:
        _start(without)
    except VitinitError as error:
        _start(method)  # where the method itself fails, that is the error
        return str(error)
    return ""


def _start(spec: RunSpec) -> None:
    """Initialise a model as a run would, or nearly: images are noise.

    Raises:
        VitinitError: it cannot begin.
    """
    import torch

    from vitinit.benchmark.models.build import build_model
    from vitinit.initializers import registry
    from vitinit.initializers.initialize import initialize
    from vitinit.initializers.registry import Resources
    from vitinit.initializers.streams import stream

    def images(count: int) -> torch.Tensor:
        side = spec.model.image_size
        return torch.randn(min(count, 8), 3, side, side, generator=stream(spec.seed, "init/images"))

    model = build_model(spec.model, classes=10)
    base = registry.build(spec.base.name, spec.base.params, "base")
    method = registry.build(spec.method.name, spec.method.params, "method") if spec.method else None
    initialize(model, base, method, lambda name: stream(spec.seed, name), resources=Resources(training_images=images))


def recorded(ranked: Ranked, results: Path, retry_failed: bool) -> int:
    """Return how many seeds, from the first on, have nothing left to do."""
    from vitinit.benchmark.grids.grid import load

    found = Store(results).read(ranked.grid.stem)
    over = found.done.keys() | (set() if retry_failed else found.failed.keys())
    open_seeds = {cell.spec.seed for cell in load(str(ranked.grid)).cells if cell.run_id not in over}
    return next((i for i, seed in enumerate(ranked.looks.seeds) if seed in open_seeds), len(ranked.looks.seeds))


@dataclass
class Budget:
    """Time for training: one round always fits, another where the longest of before would."""

    seconds: float
    began: float = field(default_factory=lambda: time.monotonic())
    longest: float = 0.0

    def allows(self) -> bool:
        """Check whether another round fits."""
        return not self.longest or time.monotonic() - self.began + self.longest <= self.seconds

    def rounds(self, done: int, target: int, at_once: int, carry_out: Callable[[int, int], int]) -> tuple[int, int]:
        """Carry out seeds from the `done`-th on up to `target`, `at_once` at a time.

        Returns:
            How many seeds are carried out, and what the last round returned; anything but 0 ends them.
        """
        code = 0
        while done < target and not code and self.allows():
            before, upto = time.monotonic(), min(target, done + at_once)
            code, done = carry_out(done, upto), upto
            self.longest = max(self.longest, time.monotonic() - before)
        return done, code


def standing(arguments: list[str]) -> int:
    """Print where a study stands, by `analysis.standing` in a process of its own; return its exit code."""
    code = OURS.format(str(IMPORTED_FROM), "vitinit.analysis.standing")
    return subprocess.run([sys.executable, "-c", code, *arguments]).returncode
