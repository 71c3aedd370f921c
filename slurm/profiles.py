"""Profiles: what a job asks a cluster for, one YAML file per kind of cluster."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from vitinit.initializers.errors import VitinitError, explain, unknown_name

HERE = Path(__file__).parent / "profiles"
MOST_BYTES = 2**20
"""Size of a file that may be a profile."""
BLANK = "", "~", "null"
"""Values of what is left out."""
GONE = {"parallel": "jobs: N", "runs_per_job": "nothing: a job carries out runs until none is left"}
"""Fields of older profiles, and what to write in their place."""


class _Loader(yaml.BaseLoader):
    """Reads all as text: SLURM reads 2:00:00, account 0123 and version 3.10 as they are written. No key comes twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.YAMLError(f"{twice[0]!r} is there twice")
        return node


REFUSED: dict[str, str] = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_bytes())
"""Options of sbatch that are not for `sbatch`, with the reason; `export: ALL` and a `gres` without a GPU are."""


def matching(pattern: str, advice: str) -> AfterValidator:
    """Return a validator of text that refuses, with advice, what does not match."""

    def check(given: str) -> str:
        if not re.fullmatch(pattern, given, re.ASCII):
            raise ValueError(f"{given!r} {advice}")
        return given

    return AfterValidator(check)


Word = Annotated[str, matching(r"[^\s'\"]+", "is not one word")]
Memory = Annotated[
    str,
    matching(r"(?i)\d+ ?[KMGT]?(i?B)?", "is none; write 32G, or megabytes"),
    AfterValidator(lambda given: re.sub(" |I?B$", "", given.upper())),
]


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
    gpu_option: Literal["gres", "gpus", "gpus-per-node"] = "gres"
    """The option of sbatch by which the cluster wants to be asked for GPUs."""
    cpus: PositiveInt = 2
    """Per process."""
    memory: Memory | None = None
    """Per node, such as 32G; a bare number is in megabytes."""
    time: str = "2:00:00"
    """Limit of a job: minutes, or as SLURM writes it."""
    jobs: PositiveInt = 64
    """Most jobs at the same time."""
    signal_seconds: PositiveInt = 120
    """Seconds before its limit at which a job gets SIGUSR2; SLURM may be up to a minute early."""
    setup: Annotated[
        tuple[str, ...], BeforeValidator(lambda given: given.splitlines() if isinstance(given, str) else given)
    ] = ()
    """Lines of shell before the job."""
    environment: dict[Annotated[str, matching(r"[A-Za-z_]\w*", "is no name of a variable")], str] = Field(
        default_factory=dict
    )
    """Variables of the job, set after `setup`."""
    sbatch: dict[str, str] = Field(default_factory=dict)
    """Any other option of sbatch by its long name; true stands for an option without a value, false for none."""

    @field_validator("sbatch")
    @classmethod
    def _only_other_options(cls, options: dict[str, str]) -> dict[str, str]:
        options = {key: text.lower() if text.lower() in ("true", "false") else text for key, text in options.items()}
        for option, text in options.items():
            if not re.fullmatch(r"[a-z]{2,}(-[a-z]+)*", option):
                raise ValueError(f"{option!r} is not the long name of an option, such as exclude or mail-type")
            if text in BLANK:
                raise ValueError(f"{option!r} is blank: write its value, true for a flag, or leave it out")
            if option == "requeue" and text not in ("true", "false"):
                raise ValueError(f"requeue: {text}: write true or false")
            if (
                option in REFUSED
                and (option, text) != ("export", "ALL")
                and ("gpu" in text.lower() or option != "gres")
            ):
                raise ValueError(f"{option!r} is not for here: {REFUSED[option]}")
        return options

    @model_validator(mode="after")
    def _fits_together(self) -> "Profile":
        if seconds(self.time) <= self.signal_seconds:
            raise ValueError(
                f"time: {self.time} is not longer than signal_seconds ({self.signal_seconds}): "
                "jobs would be told to stop as they start"
            )
        if self.gpu_type and not self.gpus:
            raise ValueError("gpu_type: needs gpus of at least 1")
        return self

    @property
    def processes_per_node(self) -> int:
        """`processes`, or what stands for it."""
        return self.processes or self.gpus or 1

    @property
    def tasks(self) -> int:
        """Processes per job."""
        return self.nodes * self.processes_per_node


def seconds(time: str) -> int:
    """A time limit in seconds.

    Raises:
        ValueError: SLURM does not write times like that.
    """
    if not re.fullmatch(r"([0-9]+-)?[0-9]+(:[0-9]+){0,2}", time):
        raise ValueError(
            f"time: {time!r} is none; write minutes, HOURS:MINUTES:SECONDS or DAYS-HOURS:MINUTES:SECONDS, such as "
            "2:00:00"
        )
    days, _, clock = time.rpartition("-")
    if not days and clock.count(":") < 2:  # minutes, or minutes:seconds
        clock = f"0:{clock}"
    hours, minutes, rest = map(int, f"{clock}:0:0".split(":")[:3])
    return 86400 * int(days or 0) + 3600 * hours + 60 * minutes + rest


def names() -> list[str]:
    """The shipped profiles."""
    return sorted(path.stem for path in HERE.glob("*.yaml"))


def load(name_or_path: str | None) -> Profile:
    """A profile.

    Args:
        name_or_path: a name from `names()` or a path that ends in .yaml or .yml; without one, a profile at its
            defaults, without a GPU.

    Raises:
        VitinitError: there is no such profile, or its file is not a valid one.
    """
    if not name_or_path:
        return Profile()
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml"):
        if name_or_path not in names():
            raise VitinitError(f"{unknown_name('profile', name_or_path, names())}, or a path ending in .yaml")
        path = HERE / f"{name_or_path}.yaml"
    if path.exists() and (not path.is_file() or path.stat().st_size > MOST_BYTES):
        raise VitinitError(f"profile {path}: no regular file of at most {MOST_BYTES:,} bytes")
    try:
        loaded = yaml.load(path.read_text(encoding="utf-8"), _Loader) or {}  # noqa: S506 (texts, lists and mappings only)
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise VitinitError(f"profile {path}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(loaded, dict):
        raise VitinitError(f"profile {path}: expected a mapping of fields to values")
    for key in loaded.keys() & GONE.keys():
        raise VitinitError(f"profile {path}: {key} is gone; write {GONE[key]}")
    given = {key: value for key, value in loaded.items() if value not in BLANK}
    try:
        return Profile.model_validate({"name": path.stem, **given})
    except ValidationError as error:
        raise explain(error, f"profile {path}", Profile) from None
