"""Profiles: what a job asks a cluster for, one YAML file per kind of cluster."""

from __future__ import annotations

import difflib
import math
import re
import reprlib
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from vitinit.slurm.errors import SlurmError

HERE = Path(__file__).parent / "profiles"

_TIMES = (
    r"(?P<minutes>\d+)",
    r"(?P<minutes>\d+):(?P<seconds>\d+)",
    r"(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)",
    r"(?P<days>\d+)-(?P<hours>\d+)(:(?P<minutes>\d+)(:(?P<seconds>\d+))?)?",
)
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}

_FIELD_OF = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "nodes": "nodes",
    "ntasks-per-node": "processes",
    "gpus-per-node": "gpus",
    "cpus-per-task": "cpus",
    "mem": "memory",
    "mem-per-cpu": "memory",
    "mem-per-gpu": "memory",
    "gpus": "gpus",
    "gpus-per-task": "gpus",
    "time": "time",
    "signal": "signal_seconds",
}
"""Options of sbatch that are fields of a profile."""
_RESERVED = {"array", "chdir", "dependency", "error", "job-name", "ntasks", "open-mode", "output", "wrap"}
"""Options of sbatch that submitting sets, or that contradict it."""

Word = Annotated[str, StringConstraints(pattern=r"^[^\s'\"]+$")]


class Profile(BaseModel):
    """Request of every job to the cluster. Fields left out take the cluster's defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    name: str = "default"
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    nodes: PositiveInt = 1
    """Nodes per job."""
    processes: PositiveInt | None = None
    """Processes per node; None: one per GPU, or one."""
    gpus: NonNegativeInt = 0
    """Per node."""
    gpu_type: Word | None = None
    cpus: PositiveInt = 2
    """Per process."""
    memory: Annotated[str, StringConstraints(pattern=r"^\d+[KMGT]?$")] | None = None
    """Per node, such as 32G; a bare number is in megabytes."""
    time: PositiveInt | str = "2:00:00"
    """Limit of a job: minutes, or as SLURM writes it."""
    parallel: PositiveInt | None = None
    """Most jobs of one submission that run at the same time."""
    signal_seconds: PositiveInt = 120
    """So many seconds before its limit a job gets SIGUSR2; SLURM may be up to a minute early."""
    setup: tuple[str, ...] = ()
    """Lines of shell before the job."""
    environment: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")], str] = Field(default_factory=dict)
    """Variables of the job, set after `setup`."""
    sbatch: dict[str, bool | int | Annotated[str, StringConstraints(pattern=r"^[^\n]*$")]] = Field(default_factory=dict)
    """Any other option of sbatch by its long name; true stands for an option without a value, false for none."""

    @field_validator("sbatch")
    @classmethod
    def _only_other_options(cls, options: dict[str, bool | int | str]) -> dict[str, bool | int | str]:
        for option in options:
            if not re.fullmatch(r"[a-z]+(-[a-z]+)*", option) or len(option) == 1:
                raise ValueError(f"{option!r} is not the long name of an option, such as exclude or mail-type")
            if option in _FIELD_OF:
                raise ValueError(f"{option!r} is the field {_FIELD_OF[option]!r} of the profile")
            if option in _RESERVED:
                raise ValueError(f"{option!r} is set by submitting; not allowed: {', '.join(sorted(_RESERVED))}")
        return options

    @model_validator(mode="after")
    def _fits_together(self) -> Profile:
        try:
            limit = seconds(self.time)
        except ValueError as error:
            raise ValueError(f"time: {error} (given: {self.time!r})") from error
        if limit <= self.signal_seconds:
            raise ValueError(
                f"time: {self.time} is not longer than signal_seconds ({self.signal_seconds}): "
                "jobs would be told to stop as they start"
            )
        if self.gpu_type and not self.gpus:
            raise ValueError("gpu_type: needs gpus of at least 1")
        if self.gpus and "gres" in self.sbatch:
            raise ValueError("sbatch: 'gres' asks for GPUs a second time; use either it or the field 'gpus'")
        return self

    @property
    def processes_per_node(self) -> int:
        """`processes`, or what stands for it."""
        return self.processes or self.gpus or 1

    @property
    def tasks(self) -> int:
        """Processes per job."""
        return self.nodes * self.processes_per_node

    @property
    def minutes(self) -> int:
        """The time limit in minutes, rounded up."""
        return math.ceil(seconds(self.time) / 60)


def seconds(time: str | int) -> int:
    """A time limit in seconds; an int is in minutes.

    Raises:
        ValueError: SLURM does not write times like that.
    """
    for form in _TIMES:
        if found := re.fullmatch(form, str(time)):
            return sum(int(number or 0) * _SECONDS[unit] for unit, number in found.groupdict().items())
    raise ValueError("expected minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS, such as 2:00:00")


def names() -> list[str]:
    """The shipped profiles."""
    return sorted(path.stem for path in HERE.glob("*.yaml"))


def load(name_or_path: str | None) -> Profile:
    """A profile.

    Args:
        name_or_path: a name from `names()` or a path that ends in .yaml or .yml; None is a profile at its defaults,
            without a GPU.

    Raises:
        SlurmError: there is no such profile, or its file is not a valid one.
    """
    if name_or_path is None:
        return Profile()
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in names():
            near = difflib.get_close_matches(name_or_path, names(), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ";"
            shipped = ", ".join(names())
            raise SlurmError(f"unknown profile {name_or_path!r}{hint} available: {shipped}, or a path ending in .yaml")
        path = HERE / f"{name_or_path}.yaml"
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), _ProfileLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SlurmError(f"profile {path}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(loaded := {} if loaded is None else loaded, dict):
        raise SlurmError(f"profile {path}: expected a mapping of fields to values")
    fields = {name: field for name, field in Profile.model_fields.items() if name != "name"}
    if unknown := [key for key in loaded if key not in fields]:
        near = difflib.get_close_matches(str(unknown[0]), fields, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        known = ", ".join(
            f"{name} (default: {field.get_default(call_default_factory=True)})" for name, field in fields.items()
        )
        raise SlurmError(f"profile {path}: unknown field {unknown[0]!r}{hint} available: {known}")
    try:
        return Profile(name=path.stem, **loaded)
    except ValidationError as error:
        raise SlurmError(f"profile {path}: {_explained(error)}") from error


def _explained(error: ValidationError) -> str:
    """Return what is wrong with each field, with the value given."""
    wrong: dict[str, str] = {}
    for item in error.errors(include_url=False):
        field = str(item["loc"][0]) if item["loc"] else ""
        message = item["msg"].removeprefix("Value error, ")
        given = f" (given: {reprlib.repr(item['input'])})" if field else ""
        wrong.setdefault(field, f"{field}: {message}{given}" if field else message)
    return "; ".join(wrong.values())


class _ProfileLoader(yaml.SafeLoader):
    """Safe, and `2:00:00` stays text: YAML 1.1 reads it as the number 7200, in base 60."""


_ProfileLoader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:int"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_ProfileLoader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?\d+$"), list("-+0123456789"))
