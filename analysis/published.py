"""Numbers from papers, each with where it comes from: `results/published/<arXiv id>.json`."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from analysis.text import one_line
from benchmark.record import Percent
from benchmark.spec import DatasetSpec, Frozen, RunSpec, Share
from initializers.errors import VitinitError, explain, unknown_name

FOLDER = Path(__file__).parents[1] / "results" / "published"
PAPER, TABLE = "2404.01139", "Table 2"
"""The published table that stands beside every study that no other table names."""

ABLATIONS = {
    *("pseudo_input", "pseudo_input_later", "control", "value_proj", "weight_norm", "parts"),
    *("train_gating", "conv_init", "train_gpsa", "gate"),
}
"""Method parameters that a record holds only where they differ from the method as it was published."""

TRAINING_IMAGES = {"imagenet": 1_281_167}
"""Of the whole training split, for each dataset of which papers took a fraction."""


class PublishedCell(Frozen):
    """One number of a paper and the runs of ours that it belongs beside."""

    paper: str
    table: str
    dataset: str
    arch: Literal["vit", "convit", "convmixer"]
    model: dict[str, Any] = Field(default_factory=dict)
    """Fields of the model that ours must have. Without any, the number stands beside a model of any size."""
    base: str | None
    """None: the paper does not say; beside any."""
    method: str | None
    params: dict[str, Any] | None
    """Method parameters that the paper fixes; ours must have these and may have more, but no other of `ABLATIONS`.
    None: they are not known, and the number stands beside none of ours."""
    train_fraction: Share | None = None
    """Of the dataset's training images; ours must have it. None: the number stands beside subsets of any size."""
    masked: Literal["position embedding", "content attention", "positional attention"] | None = None
    """What the trained model was tested without; such a number stands beside no plain accuracy."""
    masked_layers: PositiveInt | None = None
    """In how many layers, where it is not the whole model."""
    average: bool = False
    """Over the columns of the table, whose runs differ in model or parameters."""
    value: Percent
    """Top-1."""
    top5: Percent | None = None
    """As published beside it; our records have none."""
    spread: Annotated[float, Field(ge=0)] | None
    """Half-width of the published error bar."""
    n: PositiveInt | None
    """Seeds behind the value."""
    provenance: Literal["P", "C", "A", "R", "3", "M"]
    """P the paper, C the authors' code, A the authors in public discussion, R a third-party review,
    3 a third party's reproduction, M derived or measured by us."""
    note: str

    @model_validator(mode="after")
    def _a_fraction_is_of_a_known_number(self) -> PublishedCell:
        if self.train_fraction is not None and self.dataset not in TRAINING_IMAGES:
            raise ValueError(f"train_fraction needs a dataset whose size is known: {', '.join(TRAINING_IMAGES)}")
        return self

    def matches(self, spec: RunSpec) -> bool:
        """Whether dataset, architecture, base and method are the spec's; what is not named here may differ.

        A method in part, or with its pattern broken, is not the method whose number was published.
        """
        if self.params is None or self.masked or self.base not in (None, spec.base.name):
            return False
        method, params = (spec.method.name, spec.method.params) if spec.method else (None, {})
        model = spec.model.model_dump()
        return (
            (self.dataset, self.arch, self.method) == (spec.dataset.name, spec.model.arch, method)
            and {**model, **self.model} == model
            and {**params, **self.params} == params
            and ABLATIONS & params.keys() <= self.params.keys()
            and self._has_images(spec.dataset)
        )

    def in_its_setting(self, spec: RunSpec) -> RunSpec:
        """The spec with the dataset, its fraction and the fields of the model that this number is of."""
        images = TRAINING_IMAGES.get(self.dataset, 0) * (self.train_fraction or 1)
        dataset = DatasetSpec(name=self.dataset, train_size=round(images) or None)
        return spec.model_copy(update={"dataset": dataset, "model": spec.model.model_copy(update=self.model)})

    def _has_images(self, dataset: DatasetSpec) -> bool:
        """Whether a subset of the same dataset has the fraction: papers round it in every class, by up to 2 % of it."""
        if self.train_fraction is None:
            return True
        whole = TRAINING_IMAGES[self.dataset]
        return math.isclose((dataset.train_size or whole) / whole, self.train_fraction, rel_tol=0.02)


class PublishedTable(Frozen):
    """One table or figure of a paper, as far as it is known."""

    title: str
    setting: str
    """In which its numbers were taken."""
    source: str
    studies: list[str]
    """The studies that it stands beside."""


class Publication(Frozen):
    """One paper: what it is, its tables, and their numbers."""

    paper: str
    """arXiv id; also the name of the file."""
    title: str
    authors: list[str]
    source: str
    tables: dict[str, PublishedTable]
    cells: Annotated[list[PublishedCell], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_number_a_cell(self) -> Publication:
        seen = set()
        for cell in self.cells:
            key = cell.model_dump_json(exclude={"value", "top5", "spread", "n", "provenance", "note"})
            if cell.table not in self.tables:
                raise ValueError(f"a cell of {cell.table!r}, which is not among the tables")
            if cell.paper != self.paper:
                raise ValueError(f"a cell of paper {cell.paper} in the file of {self.paper}")
            if key in seen:
                raise ValueError(f"two numbers for {key}")
            seen.add(key)
        return self


@cache
def publication(paper: str, folder: Path = FOLDER) -> Publication:
    """Read and validate one paper's file.

    Raises:
        VitinitError: there is no such file, or it does not validate.
    """
    known = sorted(path.stem for path in folder.glob("*.json"))
    if paper not in known:
        raise unknown_name("published paper", paper, known)
    path = folder / f"{paper}.json"
    try:
        content = Publication.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise VitinitError(one_line(str(explain(error, str(path))), 300)) from None
    except OSError as error:
        raise VitinitError(f"cannot read {path}: {error.strerror or error}") from None
    if content.paper != paper:
        raise VitinitError(f"{path}: holds paper {content.paper}")
    return content


def papers(folder: Path = FOLDER) -> list[Publication]:
    """Every paper, by arXiv id."""
    return [publication(path.stem, folder) for path in sorted(folder.glob("*.json"))]


@cache
def beside(study: str) -> tuple[Publication, str]:
    """The paper and its table that stand beside a study: those that name it, otherwise Table 2 of arXiv 2404.01139."""
    for paper in papers():
        for name, table in paper.tables.items():
            if study in table.studies:
                return paper, name
    return publication(PAPER), TABLE


def fractions(spec: RunSpec, study: str) -> list[PublishedCell]:
    """What the table beside a study has for a run's initialisation and architecture, at each fraction of the images.

    Its dataset and the size of its model may be others than the run's: beside a small study these are the numbers of
    the large one.
    """
    paper, table = beside(study)
    cells = [cell for cell in paper.cells if cell.table == table and cell.train_fraction]
    return [cell for cell in cells if cell.matches(cell.in_its_setting(spec))]


def lookup(spec: RunSpec, study: str = "table2", average: bool = False) -> PublishedCell | None:
    """The published number for a run of a study, or None: a number nobody published stays empty.

    Args:
        spec: The run's.
        study: The run's; it says which published table.
        average: The number over all columns of the table, in place of the run's own.
    """
    paper, table = beside(study)
    found = [c for c in paper.cells if (c.table, c.average) == (table, average) and c.matches(spec)]
    return max(found, key=lambda cell: len(cell.params or {}), default=None)
