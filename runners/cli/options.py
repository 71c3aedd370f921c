"""Options that several commands of `vitinit` share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from vitinit.benchmark.terminal import Terminal
from vitinit.initializers.errors import VitinitError

LOCAL = Path("results/local")
"""Folder of this machine's records."""
REFERENCE = Path("results/reference")
"""Records that come with the project."""
WHAT, WHERE, SPEED, SAVING, MEASURING = "What", "Where", "Speed", "Saving and going on", "Measuring"
"""Groups of options in the help."""


def _folder(path: Path | None) -> Path | None:
    """Refuse a file or device where a folder is to be; one that is not there yet is made when something is written."""
    there = next((one for one in (path, *path.parents) if os.path.exists(one)), None) if path else None  # noqa: PTH110
    if there and not os.path.isdir(there):  # noqa: PTH112 - neither raises where a folder may not be entered
        raise VitinitError(f"{there} is no folder, and one is needed: --results DIR, --data-dir DIR")
    return path


DataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        callback=_folder,
        rich_help_panel=WHERE,
        help="Folder of datasets. Default: $VITINIT_DATA, else ./data.",
    ),
]

GridArgument = Annotated[
    str, typer.Argument(metavar="GRID", help="Name of a grid (vitinit list grids) or a YAML file.")
]
SeedsOption = Annotated[
    str | None,
    typer.Option(metavar="LIST", rich_help_panel=WHAT, help="Seeds to run in place of the grid's: 0-4 or 0,2,7."),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=TEXT",
        rich_help_panel=WHAT,
        help="Only these runs; keys: row, dataset, base, method, arch, seed, id and every field (lr, width); * is any "
        "text. Repeatable.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        rich_help_panel=WHAT,
        help="Replace a value of the grid: recipe.lr=1e-3, width=96, dataset.train_size=1000. Repeatable.",
    ),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", rich_help_panel=WHAT, help="At most this many runs now.")
]
ResultsOption = Annotated[
    Path, typer.Option(metavar="DIR", callback=_folder, rich_help_panel=WHERE, help="Where records go.")
]

RunIdArgument = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run_id, or its first digits.")]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        envvar="VITINIT_PROFILE",
        show_envvar=False,
        rich_help_panel=WHERE,
        help="Requests of a job: a name of vitinit slurm profiles, or a YAML file. Default: $VITINIT_PROFILE.",
    ),
]

console = Terminal()
