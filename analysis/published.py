"""Numbers from papers, each with where it comes from: `results/published/<arXiv id>.json`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, model_validator

from analysis.text import one_line
from benchmark.record import Percent
from benchmark.spec import Frozen, RunSpec
from initializers.errors import VitinitError, explain, unknown_name

FOLDER = Path(__file__).parents[1] / "results" / "published"
PAPER, TABLE = "2404.01139", "Table 2"
"""The one published table that stands beside ours."""

ABLATIONS = {"pseudo_input", "pseudo_input_later", "control", "value_proj", "weight_norm", "parts"}
"""Method parameters that a record holds only where they differ from the method as it was published."""


class PublishedCell(Frozen):
    """One number of a paper and the runs of ours that it belongs beside."""

    paper: str
    table: str
    dataset: str
    arch: Literal["vit", "convit"]
    base: str
    method: str | None
    params: dict[str, Any]
    """Method parameters that the paper fixes; ours must have these and may have more, but no other of `ABLATIONS`."""
    value: Percent
    spread: Annotated[float, Field(ge=0)] | None
    """Half-width of the published error bar."""
    n: PositiveInt | None
    """Seeds behind the value."""
    provenance: Literal["P", "C", "A", "R", "3", "M"]
    """P the paper, C the authors' code, A the authors in public discussion, R a third-party review,
    3 a third party's reproduction, M derived or measured by us."""
    note: str

    def matches(self, spec: RunSpec) -> bool:
        """Whether dataset, architecture, base and method are the spec's; size, recipe and solver may differ.

        A method in part, or with its pattern broken, is not the method whose number was published.
        """
        method, params = (spec.method.name, spec.method.params) if spec.method else (None, {})
        return (
            (self.dataset, self.arch, self.base, self.method)
            == (
                spec.dataset.name,
                spec.model.arch,
                spec.base.name,
                method,
            )
            and {**params, **self.params} == params
            and ABLATIONS & params.keys() <= self.params.keys()
        )


class Publication(Frozen):
    """One paper: what it is, in which setting its numbers were taken, and the numbers."""

    paper: str
    """arXiv id; also the name of the file."""
    title: str
    authors: list[str]
    setting: str
    source: str
    cells: Annotated[list[PublishedCell], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_number_a_cell(self) -> Publication:
        seen = set()
        for cell in self.cells:
            key = (cell.table, cell.dataset, cell.arch, cell.base, cell.method, str(sorted(cell.params.items())))
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
    known = [path.stem for path in folder.glob("*.json")]
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


def lookup(spec: RunSpec, paper: str = PAPER, table: str = TABLE) -> PublishedCell | None:
    """The published number for a run, or None: a number nobody published stays empty."""
    found = [cell for cell in publication(paper).cells if cell.table == table and cell.matches(spec)]
    return max(found, key=lambda cell: len(cell.params), default=None)
