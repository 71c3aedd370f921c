"""Profiles: what a job asks a cluster for, as YAML files that fit one cluster each."""

from __future__ import annotations

import math
import re
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

HERE = Path(__file__).parent / "profiles"
SUFFIXES = (".yaml", ".yml")

_TIMES = (
    r"(?P<minutes>\d+)",
    r"(?P<minutes>\d+):(?P<seconds>\d+)",
    r"(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)",
    r"(?P<days>\d+)-(?P<hours>\d+)(:(?P<minutes>\d+)(:(?P<seconds>\d+))?)?",
)
_SECONDS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}

_OWNED = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "constraint": "constraint",
    "nodes": "nodes",
    "ntasks-per-node": "processes",
    "cpus-per-task": "cpus",
    "gpus-per-node": "gpus",
    "mem": "memory",
    "time": "time",
    "signal": "signal_seconds",
}
"""Options of sbatch that a field of the profile sets."""
_RESERVED = {"array", "dependency", "output", "error", "open-mode", "job-name", "chdir", "ntasks", "wrap"}
"""Options of sbatch that submitting sets."""


class Profile(BaseModel):
    """What every job asks for. Fields left out take what the cluster gives by default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "default"
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    nodes: PositiveInt = 1
    """Nodes per job."""
    processes: PositiveInt | None = None
    """Processes per node; left out, one per GPU."""
    gpus: NonNegativeInt = 0
    """Per node."""
    gpu_type: str | None = None
    cpus: PositiveInt = 2
    """Per process."""
    memory: str | None = None
    """Per node, such as 32G."""
    time: str | PositiveInt = "2:00:00"
    """Limit of a job: minutes, or as SLURM writes it."""
    parallel: PositiveInt | None = None
    """Jobs of one submission that run at the same time."""
    signal_seconds: PositiveInt = 120
    """Jobs are told (SIGUSR2) so many seconds before their limit."""
    setup: tuple[str, ...] = ()
    """Lines of shell before the job."""
    environment: dict[str, str] = Field(default_factory=dict)
    sbatch: dict[str, str | int | bool] = Field(default_factory=dict)
    """Any other option of sbatch, by its long name."""

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
        """The limit in minutes, rounded up."""
        return math.ceil(seconds(self.time) / 60)


def seconds(time: str | int) -> int:
    """A time as SLURM writes it (an int: minutes) in seconds; ValueError when it is none."""
    for form in _TIMES:
        if found := re.fullmatch(form, str(time)):
            return sum(int(number or 0) * _SECONDS[unit] for unit, number in found.groupdict().items())
    raise ValueError("expected minutes or HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS, such as 2:00:00")


def names() -> list[str]:
    """The shipped profiles."""
    return sorted(path.stem for path in HERE.glob("*.yaml"))


def load(name_or_path: str | None) -> Profile:
    """A shipped profile by its name, or one from a YAML file; None asks for what the cluster gives by default.

    Raises:
        SlurmError: no such profile, or the file is not a valid one.
    """
    if name_or_path is None:
        return Profile()
    path = Path(name_or_path)
    if path.suffix not in SUFFIXES:
        path = HERE / f"{name_or_path}.yaml"
    return Profile(name=path.stem, **yaml.safe_load(path.read_text(encoding="utf-8")))
