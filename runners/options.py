"""Options of the commands: those that several share, and `LaunchOptions`, all of `vitinit run`."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from vitinit.benchmark.terminal import Terminal
from vitinit.initializers.errors import VitinitError

LOCAL = Path("results/local")
"""Folder of this machine's records."""
REFERENCE = Path("results/reference")
"""Records that come with the project."""

console = Terminal()


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> None:
    """Print a table; on a terminal its widest columns are folded. Those headed `right` are flush right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _option(group: str, text: str, *names: str, metavar: str = "", **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, rich_help_panel=group, show_default=False, help=text, **more)


def _folder(path: Path | None) -> Path | None:
    """Refuse a file or device where a folder is to be; one that is not there yet is made when something is written."""
    for folder in (path, *path.parents) if path else ():
        # neither raises where a folder may not be entered
        if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112
            raise VitinitError(f"{folder} is no folder, and one is needed: --results DIR, --data-dir DIR")
    return path


WHAT, WHERE, SPEED, KEEPING = "What", "Where", "Speed", "Saving and measuring"
"""Groups of options in the help."""

GridArgument = Annotated[
    str, typer.Argument(metavar="GRID", help="Name of a grid (vitinit list grids) or a YAML file.")
]
RunIdArgument = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run_id, or its first digits.")]
SeedsOption = Annotated[str | None, _option(WHAT, "In place of the grid's: 0-4 or 0,2,7.", metavar="LIST")]
OnlyOption = Annotated[
    list[str] | None,
    _option(WHAT, "By row, dataset, method, id or any field.", metavar="KEY=TEXT"),
]
SetOption = Annotated[list[str] | None, _option(WHAT, "Another value: recipe.lr=1e-3.", "--set", metavar="FIELD=VALUE")]
DataOption = Annotated[
    Path | None, _option(WHERE, "Datasets. Default: $VITINIT_DATA, else data.", metavar="DIR", callback=_folder)
]
ResultsOption = Annotated[Path, _option(WHERE, "Records. Default: results/local.", metavar="DIR", callback=_folder)]


@dataclass(frozen=True)
class LaunchOptions:
    """Flags of `vitinit run`, arguments of `vitinit.run`: which runs of a grid are carried out, where and how."""

    only: OnlyOption = None
    retry_failed: Annotated[bool, _option(WHAT, "Run again what failed.", "--retry-failed")] = False
    dry_run: Annotated[bool, _option(WHAT, "Show the plan and stop.", "--dry-run")] = False
    trial: Annotated[bool, _option(WHAT, "One step of each row here: what fails, how long.", "--try")] = False
    executor: Annotated[
        Literal["auto", "inline", "local", "slurm"],
        _option(WHERE, "inline, local (processes), slurm. Default: auto.", metavar="NAME"),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu", "cuda"], _option(WHERE, "cpu or cuda. Default: cuda if there is one.", metavar="NAME")
    ] = "auto"
    profile: Annotated[str | None, _option(WHERE, "A job's requests: a name or YAML file.", metavar="NAME")] = None
    wait: Annotated[bool, _option(WHERE, "Wait for the jobs, say how they ended.", "--wait")] = False
    add: Annotated[int | None, _option(WHERE, "Submit N more jobs.", metavar="N", min=1)] = None
    data_dir: DataOption = None
    results: ResultsOption = LOCAL
    workers: Annotated[
        int | None, _option(SPEED, "Runs at once. Default: one a core; by size on a GPU.", metavar="N", min=1)
    ] = None
    micro_batch: Annotated[
        int | None, _option(SPEED, "Images at once; the batch stays as it is.", metavar="N", min=1)
    ] = None
    loader: Annotated[
        Literal["auto", "resident", "ffcv"], _option(SPEED, "resident (memory) or ffcv.", metavar="NAME")
    ] = "auto"
    compiled: Annotated[bool, _option(SPEED, "Train with torch.compile (GPU).", "--compile")] = False
    checkpoint_minutes: Annotated[
        float, _option(KEEPING, "Minutes between checkpoints. Default: 5.", metavar="N", min=0)
    ] = 5.0
    keep_weights: Annotated[bool, _option(KEEPING, "Keep final weights in weights/RUN_ID.pt.", "--keep-weights")] = (
        False
    )
    track: Annotated[list[str] | None, _option(KEEPING, "Also tensorboard, wandb or file.py:NAME.", metavar="NAME")] = (
        None
    )
    measures: Annotated[
        list[str] | None, _option(KEEPING, "Also one of your own.", "--probe", "--metric", metavar="FILE.py:NAME")
    ] = None
    probes: Annotated[bool, _option(KEEPING, "Measure attention during training. Default: on.")] = True
    keep_maps: Annotated[bool, _option(KEEPING, "Keep attention maps before and after training.", "--keep-maps")] = (
        False
    )
    deterministic: Annotated[bool, _option(SPEED, "The same bits on a GPU; slower.", "--deterministic")] = False


@dataclass(frozen=True, kw_only=True)
class RunCommand(LaunchOptions):
    """All that `vitinit run` is given: the grid and what is said in its place, too."""

    grid: GridArgument
    seeds: SeedsOption = None
    fixed: SetOption = None
