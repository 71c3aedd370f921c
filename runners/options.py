"""Options that several commands share, and `LaunchOptions`, those of a launch."""

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BeforeValidator, Field, NonNegativeFloat
from rich.table import Table

from vitinit.benchmark.files.reading import folder
from vitinit.benchmark.records.store import LOCAL
from vitinit.benchmark.terminal import Terminal

ExecutorName = Literal["auto", "inline", "local", "slurm"]
DeviceName = Literal["auto", "cpu", "cuda"]
LoaderName = Literal["auto", "resident", "ffcv"]

console = Terminal()
say = partial(console.print, soft_wrap=True)
"""Print a line that is not folded."""


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> None:
    """Print a table; on a terminal its widest columns are folded. Those headed `right` are flush right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def option(group: str, text: str, *names: str, metavar: str = "", **more: Any) -> Any:
    """Return an option in a group of the help, whose default the text says."""
    return typer.Option(*names, metavar=metavar, rich_help_panel=group, show_default=False, help=text, **more)


WHAT, WHERE, SPEED, KEEPING = "What", "Where", "Speed", "Saving and measuring"
"""Groups of options in the help."""

GridArgument = Annotated[
    str, typer.Argument(metavar="GRID", help="Name of a grid (vitinit list grids) or a YAML file.")
]
RunIdArgument = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run_id, or its first digits.")]
SeedsOption = Annotated[str | None, option(WHAT, "In place of the grid's: 0-4 or 0,2,7.", metavar="LIST")]
OnlyOption = Annotated[list[str] | None, option(WHAT, "By row, dataset, method, id or any field.", metavar="KEY=TEXT")]
SetOption = Annotated[list[str] | None, option(WHAT, "Another value: recipe.lr=1e-3.", "--set", metavar="FIELD=VALUE")]
DataOption = Annotated[
    Path | None, option(WHERE, "Datasets. Default: data.", metavar="DIR", callback=folder, envvar="VITINIT_DATA")
]
ResultsOption = Annotated[Path, option(WHERE, "Records. Default: results/local.", metavar="DIR", callback=folder)]


def results_option(results: Path) -> str:
    """Return the option `--results` of a suggested command; empty for the default."""
    return "" if results.absolute() == LOCAL.absolute() else f" --results {shlex.quote(str(results))}"


AtLeast1 = Annotated[int, Field(ge=1)]
Texts = Annotated[list[str], BeforeValidator(lambda text: [text] if isinstance(text, str) else text)]


@dataclass(frozen=True)
class LaunchOptions:
    """Options of `vitinit run` and `vitinit.run`, which say what each means: which runs of a grid, where and how."""

    only: Texts | None = None
    retry_failed: bool = False
    dry_run: bool = False
    trial: bool = False
    executor: ExecutorName = "auto"
    device: DeviceName = "auto"
    profile: str | None = None
    wait: bool = False
    add: AtLeast1 | None = None
    data_dir: Path | None = None
    results: Path = LOCAL
    workers: AtLeast1 | None = None
    micro_batch: AtLeast1 | None = None
    loader: LoaderName = "auto"
    compiled: bool = False
    checkpoint_minutes: NonNegativeFloat = 5.0
    keep_weights: bool = False
    track: Texts | None = None
    measures: Texts | None = None
    probes: bool = True
    keep_maps: bool = False
    deterministic: bool = False
    asked: str = ""
    """Arguments of `vitinit status` for these runs."""
