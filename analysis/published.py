"""Numbers from papers, each with where it comes from: `results/published/<arXiv id>.json`.

A number stands beside one of ours only where the setting is the same in all that the paper, or its authors' code, says:
dataset and its share, model, epochs, base, and the method with every parameter. Everything else is context.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from vitinit.benchmark.fields import Frozen, Share
from vitinit.benchmark.identity import current
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, RunSpec

FOLDER = Path(__file__).resolve().parents[1] / "results" / "published"

IMAGES = {
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "imagenet": (1_281_167, 50_000),
}
"""Images of the training and test splits; papers take fractions of the first, or a record names the number."""


class Initialization(Frozen):
    """Initialisation of the weights, with every parameter as a record of ours holds it."""

    base: InitializerSpec
    method: InitializerSpec | None


class PublishedSetting(Frozen):
    """Known part of the setting of a number: of its table, row, column and itself together."""

    dataset: str | None = None
    train_fraction: Share | None = None
    """Fraction of the training images. None: all of them."""
    model: dict[str, Any] = Field(default_factory=dict)
    """Fields of a `ModelSpec`; `arch` may be a model that this benchmark does not have."""
    epochs: PositiveInt | None = None
    """None: not known."""
    initialization: Initialization | None = None
    """None: not known, or none of ours; the number then stands beside none of ours."""
    masked: Literal["position embedding", "content attention", "positional attention"] | None = None
    """Term that the trained model was tested without; such a number stands beside no plain accuracy."""
    masked_layers: PositiveInt | None = None
    """In how many layers, where it is not the whole model."""

    def __or__(self, other: PublishedSetting) -> PublishedSetting:
        """Override this setting by what another one says."""
        said = {name: getattr(other, name) for name in other.model_fields_set}
        return self.model_copy(update={**said, "model": {**self.model, **other.model}})

    def is_of(self, spec: RunSpec) -> bool:
        """Return True if a run of ours has this setting, in all that is known of it."""
        known, model = self.initialization, spec.model.model_dump()
        said = current(f"model.{model.get('arch')}", self.model, known=model)  # our ConViT has one position and pool
        return (
            known is not None
            and not self.masked
            and bool(self.model)
            and (known.base, known.method) == (spec.base, spec.method)
            and {**model, **said} == model
            and self.epochs in (None, spec.recipe.epochs)
            and self._is_of_images(spec.dataset)
        )

    def _is_of_images(self, ours: DatasetSpec) -> bool:
        """Return True if ours are these images: papers round a fraction in every class, by up to 2 % of it."""
        if self.dataset is None or ours != DatasetSpec(name=self.dataset, train_size=ours.train_size):
            return False
        share = self.train_fraction or 1
        if ours.train_size is None or self.dataset not in IMAGES:
            return ours.train_size is None and share == 1
        return math.isclose(ours.train_size / IMAGES[self.dataset][0], share, rel_tol=0 if share == 1 else 0.02)


class PublishedCell(Frozen):
    """One number of a published table."""

    row: str
    column: str
    value: Annotated[float, Field(ge=0)]
    unit: Literal["top1", "points", "epochs"] = "top1"
    """Top-1 in percent; percentage points above the paper's default; or epochs."""
    top5: Annotated[float, Field(ge=0, le=100)] | None = None
    """As published beside it; our records have none."""
    spread: Annotated[float, Field(ge=0)] | None = None
    """Half-width of the published error bar."""
    n: PositiveInt | None = None
    """Seeds behind the value, where the paper says how many."""
    provenance: Literal["P", "C", "A", "R", "3", "M"]
    """Source: P the paper, C its code, A its authors elsewhere, R a review, 3 a reproduction, M measured by us."""
    note: str = ""
    setting: PublishedSetting = PublishedSetting()
    """Setting of this number beyond that of its table, row and column."""


class PublishedTable(Frozen):
    """One table or figure of a paper, as far as it is known."""

    title: str
    setting: str
    """In which its numbers were taken, for people."""
    source: str
    studies: list[str]
    """The studies that it is the context of."""
    all: PublishedSetting = PublishedSetting()
    rows: dict[str, PublishedSetting]
    columns: dict[str, PublishedSetting]
    """Known setting of all cells, of a row, of a column; in the table's order."""
    cells: list[PublishedCell]


class Publication(Frozen):
    """One paper: what it is, and its tables."""

    paper: str
    """arXiv id, or what stands for one; also the name of the file."""
    title: str
    authors: list[str]
    source: str
    tables: dict[str, PublishedTable]

    @property
    def cited(self) -> str:
        """Authors, the first alone where they are many, and where to find it."""
        place = f"arXiv {self.paper}" if re.fullmatch(r"\d{4}\.\d{5}", self.paper) else self.paper
        authors = self.authors if len(self.authors) <= 3 else [f"{self.authors[0]} et al."]
        return ", ".join([*authors, place])


@dataclass(frozen=True)
class Published:
    """A number with the table and the paper that it is of."""

    publication: Publication
    table: str
    cell: PublishedCell
    setting: PublishedSetting

    @property
    def value(self) -> float:
        """The number."""
        return self.cell.value

    @property
    def cited(self) -> str:
        """Its table and the paper."""
        return f"{self.table} of {self.publication.cited}"

    @property
    def source(self) -> str:
        """Its table, the paper, and the table's setting."""
        return f"{self.cited} ({self.publication.tables[self.table].setting})"


@cache
def publication(paper: str) -> Publication:
    """Read and validate one paper's file."""
    return Publication.model_validate_json((FOLDER / f"{paper}.json").read_bytes())


def papers() -> list[Publication]:
    """Return every paper, by arXiv id."""
    return [publication(path.stem) for path in sorted(FOLDER.glob("*.json"))]


def numbers(publication: Publication, table: str) -> list[Published]:
    """Return all numbers of a published table, in its order."""
    content, published = publication.tables[table], []
    for cell in content.cells:
        setting = content.all | content.rows[cell.row] | content.columns[cell.column] | cell.setting
        published.append(Published(publication, table, cell, setting))
    return published


@cache
def _comparable() -> list[Published]:
    """Return the numbers that a run of ours could stand beside."""
    return [
        number
        for paper in papers()
        for name in paper.tables
        for number in numbers(paper, name)
        if number.cell.unit == "top1" and number.setting.initialization
    ]


@cache
def context(study: str) -> tuple[Publication, str] | None:
    """Return the paper and its table that name a study as their context; None if none does."""
    return next(
        ((paper, name) for paper in papers() for name, published in paper.tables.items() if study in published.studies),
        None,
    )


def read_in_part(run: RunRecord) -> bool:
    """Return True if a run read fewer or more images than its spec says."""
    if run.spec.dataset.name not in IMAGES or run.spec.dataset.evaluate_on != "test":
        return False
    trained, tested = IMAGES[run.spec.dataset.name]
    return (run.dataset.train, run.dataset.test) != (run.spec.dataset.train_size or trained, tested)


def lookup(spec: RunSpec, study: str = "") -> Published | None:
    """Return the number published in the setting of a run; None if nobody published one.

    Args:
        spec: The run's.
        study: The run's: where several tables have the setting, the one that names this study is taken, otherwise the
            first.
    """
    matches = [number for number in _comparable() if number.setting.is_of(spec)]
    return min(matches, key=lambda number: study not in number.publication.tables[number.table].studies, default=None)
