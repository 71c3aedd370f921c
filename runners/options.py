"""Options of the commands: those that several share, and `LaunchOptions`, all of `vitinit run`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

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


@dataclass(frozen=True)
class LaunchOptions:
    """Flags of `vitinit run`, arguments of `vitinit.run`: which runs of a grid are carried out, where and how."""

    only: OnlyOption = None
    limit: LimitOption = None
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", metavar="", rich_help_panel=WHAT, help="Run again what failed.")
    ] = False
    force: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN_ID",
            rich_help_panel=WHAT,
            help="Begin this run anew; its old record is kept. Repeatable.",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", rich_help_panel=WHAT, help="Show the plan and stop.")
    ] = False
    executor: Annotated[
        Literal["auto", "inline", "local", "slurm"],
        typer.Option(
            metavar="NAME",
            rich_help_panel=WHERE,
            show_default=False,
            help="inline: in this process; local: in several; slurm: in jobs of a cluster; auto: slurm where "
            "sbatch answers, else local.",
        ),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option(
            metavar="NAME",
            rich_help_panel=WHERE,
            show_default=False,
            help="cpu, cuda or auto: cuda where there is one.",
        ),
    ] = "auto"
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=WHERE,
            help="Requests of a job: a name of vitinit slurm profiles, or a YAML file. Default: $VITINIT_PROFILE.",
        ),
    ] = None
    runs_per_job: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=WHERE, min=1, help="slurm only. Default: ten minutes' worth, where measured."
        ),
    ] = None
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            metavar="",
            rich_help_panel=WHERE,
            help="Wait for the jobs and say how they ended.",
        ),
    ] = False
    brief: Annotated[
        bool,
        typer.Option(
            "--brief",
            metavar="",
            rich_help_panel=WHERE,
            help="Print a line per row and dataset, not one per run.",
        ),
    ] = False
    download: Annotated[
        bool,
        typer.Option(
            metavar="",
            rich_help_panel=WHERE,
            show_default=False,
            help="Download missing datasets. Default: on.",
        ),
    ] = True
    data_dir: DataOption = None
    results: ResultsOption = LOCAL
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=SPEED,
            min=1,
            help="Runs at once, here or in a job. Default: one a core, or one a GPU.",
        ),
    ] = None
    per_gpu: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=SPEED, min=1, help="Runs that share a GPU. Default: 1.")
    ] = None
    micro_batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=SPEED,
            min=1,
            help="At most this many images at once; the batch stays as it is.",
        ),
    ] = None
    loader: Annotated[
        Literal["auto", "resident", "ffcv"],
        typer.Option(
            metavar="NAME",
            rich_help_panel=SPEED,
            show_default=False,
            help="resident: images in memory; ffcv: from a prepared file; auto: resident where they fit. Same numbers.",
        ),
    ] = "auto"
    compiled: Annotated[
        bool, typer.Option("--compile", metavar="", rich_help_panel=SPEED, help="Train through torch.compile.")
    ] = False
    checkpoint_minutes: Annotated[
        float, typer.Option(metavar="N", rich_help_panel=SAVING, min=0, help="Save a run every N minutes.")
    ] = 5.0
    keep_weights: Annotated[
        bool,
        typer.Option(
            "--keep-weights",
            metavar="",
            rich_help_panel=SAVING,
            help="Final weights, in weights/RUN_ID.pt.",
        ),
    ] = False
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SAVING,
            help="Log to tensorboard or wandb as well; several: a,b.",
        ),
    ] = None
    probes: Annotated[
        bool,
        typer.Option(
            metavar="",
            rich_help_panel=MEASURING,
            show_default=False,
            help="Measure attention before training and after each epoch that is evaluated. Default: on.",
        ),
    ] = True
    keep_maps: Annotated[
        bool,
        typer.Option(
            "--keep-maps",
            metavar="",
            rich_help_panel=MEASURING,
            help="Keep attention maps of before and after training. Recorded runs are not repeated for them.",
        ),
    ] = False
    maps_at: Annotated[
        list[int] | None,
        typer.Option(
            metavar="EPOCH",
            rich_help_panel=MEASURING,
            min=1,
            help="Maps after this epoch too. Repeatable.",
        ),
    ] = None
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            metavar="",
            rich_help_panel=MEASURING,
            help="The same bits every time on a GPU too; slower.",
        ),
    ] = False

    @property
    def profile_name(self) -> str | None:
        """Profile of the jobs, by name or file."""
        return self.profile or os.environ.get("VITINIT_PROFILE") or None


def flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of `LaunchOptions` as options; it gets them as one value, its last argument."""
    names = [each.name for each in dataclasses.fields(LaunchOptions)]

    @functools.wraps(command)
    def parsed(**given: Any) -> None:
        chosen = LaunchOptions(**{name: given.pop(name) for name in names})
        command(**given, options=chosen)

    own = inspect.signature(command, eval_str=True).parameters
    hints = get_type_hints(LaunchOptions, include_extras=True)
    added = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in dataclasses.fields(LaunchOptions)
    ]
    every = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, each in own.items() if name != "options"
    ] + added
    vars(parsed)["__signature__"] = inspect.Signature(every)
    parsed.__annotations__ = {each.name: each.annotation for each in every}
    return parsed
