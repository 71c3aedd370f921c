"""Schema of a grid's YAML file, and the runs that it becomes. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from vitinit.benchmark.contrasts import Registered
from vitinit.benchmark.fields import Frozen, Name, Seed, named, once
from vitinit.benchmark.records.store import Layout, at_seed_0
from vitinit.benchmark.settings import column_names
from vitinit.benchmark.spec import RunSpec

MAX_SEEDS = 10_000


def seeds_of(value: Any) -> Any:
    """Return the seeds that `0-4` or `0,2,7` names; anything else than text as it is.

    Raises:
        ValueError: it names none, too many, or one twice.
    """
    if not isinstance(value, str):
        return value
    seeds = list[int]()
    for part in value.split(","):
        match = re.fullmatch(r"\s*(0|[1-9][0-9]*)\s*(-\s*(0|[1-9][0-9]*)\s*)?", part)
        if not match:
            raise ValueError("write 0-4 or 0,2,7")
        run = range(int(match[1]), int(match[3] or match[1]) + 1)
        if not 0 < len(run) <= MAX_SEEDS:
            raise ValueError(f"{part} is to name 1 to {MAX_SEEDS:,} seeds, the smallest first")
        seeds += run
    return once(seeds, "seed")


Seeds = Annotated[
    list[Seed], Field(min_length=1), BeforeValidator(seeds_of), AfterValidator(partial(once, noun="seed"))
]

Named = Annotated[dict[str, Any], BeforeValidator(named)]


class Row(Frozen):
    """One line of the table: a base, a method over it or none, and what it needs changed in the block's settings."""

    base: Named
    """Initialisation of all weights."""
    method: Named | None = None
    """Initialisation of some weights, on top of the base. None: the base alone."""
    model: dict[str, Any] = Field(default_factory=dict)
    """Fields that replace those of the block's model."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Fields that replace those of the block's recipe, such as a learning rate chosen for this row on a validation
    split (`analysis.choose` chooses one)."""


class Block(Frozen):
    """The product of its datasets, rows and seeds."""

    datasets: Annotated[list[Named], Field(min_length=1), AfterValidator(partial(once, noun="dataset"))]
    """Each row is trained on each of these."""
    model: dict[str, Any]
    """`preset` and fields that replace those of the preset, or `arch` and all its fields; `timm` or `python` names
    a model of timm or your own."""
    recipe: Named
    """Optimiser, schedule and augmentation."""
    seeds: Seeds
    """One run per seed, a list or `0-4`; the same seed has the same images, order and augmentation in every row."""
    sweep: dict[str, Annotated[list[Any], Field(min_length=1), AfterValidator(partial(once, noun="value"))]] = Field(
        default_factory=dict
    )
    """Lists of values by field of dataset, model or recipe, as `recipe.lr`, crossed. They win over fields of rows."""


class GridFile(Registered):
    """Schema of a grid's YAML file."""

    title: Annotated[str, Field(max_length=1_000)]
    """Title of the study's page and report."""
    rows: Annotated[dict[Name, Row], Field(min_length=1)]
    """Initialisations by the name that tables show, in the order of the tables."""
    blocks: Annotated[list[Block], Field(min_length=1)]
    """Runs: the product of datasets, rows and seeds of each block."""

    @model_validator(mode="after")
    def _named_rows_are_there(self) -> GridFile:
        for first, second in combinations(self.contrasts, 2):
            if first.name == second.name or first.compared == second.compared:
                raise ValueError(f"contrasts: {first.name!r} and {second.name!r} have one name or compare the same")
        for place, rows in {
            "contrasts": [row for contrast in self.contrasts for row in contrast.weights],
            "placebos": sum(self.placebos.items(), ()),
        }.items():
            if missing := [row for row in rows if row not in self.rows]:
                raise ValueError(f"{place}: there is no row {missing[0]!r}; the rows: {', '.join(self.rows)}")
        return self


@dataclass(frozen=True)
class Cell:
    """One run of a grid: its row label and its resolved spec."""

    row: str
    spec: RunSpec
    misfit: str = ""
    """Reason why the row's initialisers do not fit the model of its block; such a run is skipped."""
    column: str = ""
    """Settings that tell it from other runs of its row that are not repetitions (`benchmark.settings.columns`)."""
    name: str = ""
    """Name of its column for people (`benchmark.settings.column_names`)."""
    sources: dict[str, str] = field(default_factory=dict, compare=False)
    """The hash of the source file of each initialiser as it is here, by name."""
    remarks: Sequence[str] = field(default=(), compare=False)
    """Remarks on what the initialisers set in this model."""

    @cached_property
    def run_id(self) -> str:
        """The spec's run_id, computed once: a plan of thousands of runs asks for it several times."""
        return self.spec.run_id

    @property
    def place(self) -> tuple[str, str]:
        """Row and column, in which it and its repetitions at other seeds are alone; by their names for people."""
        return self.row, self.name or column_names({"": self.spec.dataset})[""]

    def describe(self) -> str:
        """Row, column and seed, for people."""
        return f"{', '.join(self.place)}, seed {self.spec.seed}"


@dataclass(frozen=True)
class Grid:
    """A study's name (the file's stem), its title and its runs in table order."""

    name: str
    title: str
    cells: list[Cell]
    registered: Registered = field(default_factory=Registered)
    planned: int = 0
    """Number of runs that its file names, at the file's own seeds."""

    @property
    def layout(self) -> Layout:
        """Return the facts of the grid that are stored beside the records."""
        return Layout(
            rows=list(dict.fromkeys(cell.row for cell in self.cells)),
            columns=list(dict.fromkeys(cell.column for cell in self.cells)),
            title=self.title,
            planned=self.planned,
            runs={at_seed_0(cell.spec): cell.row for cell in self.cells},
            contrasts=self.registered.contrasts,
            analysis=self.registered.analysis,
            placebos=self.registered.placebos,
        )
