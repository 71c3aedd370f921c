"""The options of `vitinit run`, in the groups that its help shows."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from vitinit.runners.cli.options import MEASURING, SAVING, SPEED, WHAT, WHERE

ExecutorOption = Annotated[
    Literal["auto", "inline", "local", "slurm"],
    typer.Option(
        metavar="NAME",
        show_default=False,
        rich_help_panel=WHERE,
        help="inline: in this process; local: in several; slurm: in jobs of a cluster; auto: slurm where sbatch "
        "answers, else local.",
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=SPEED,
        help="Runs at once, here or in a job. Default: one a core, or one a GPU.",
    ),
]
PerGpuOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", rich_help_panel=SPEED, help="Runs that share a GPU. Default: 1."),
]
RunsPerJobOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", rich_help_panel=WHERE, help="slurm only. Default: ten minutes' worth, where measured."
    ),
]
WaitOption = Annotated[
    bool, typer.Option("--wait", metavar="", rich_help_panel=WHERE, help="Wait for the jobs and say how they ended.")
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option(
        metavar="NAME",
        show_default=False,
        rich_help_panel=WHERE,
        help="cpu, cuda or auto: cuda where there is one.",
    ),
]
RetryOption = Annotated[
    bool, typer.Option("--retry-failed", metavar="", rich_help_panel=WHAT, help="Run again what failed.")
]
ForceOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RUN_ID", rich_help_panel=WHAT, help="Begin this run anew; its old record is kept. Repeatable."
    ),
]
DeterministicOption = Annotated[
    bool,
    typer.Option(
        "--deterministic", metavar="", rich_help_panel=MEASURING, help="The same bits every time on a GPU too; slower."
    ),
]
CheckpointMinutesOption = Annotated[
    float,
    typer.Option(min=0, metavar="N", rich_help_panel=SAVING, help="Save a run every N minutes."),
]
CheckpointStepsOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", rich_help_panel=SAVING, help="And every N optimiser steps."),
]
MicroBatchOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", rich_help_panel=SPEED, help="At most this many images at once; the batch stays as it is."
    ),
]
LoaderOption = Annotated[
    Literal["auto", "resident", "ffcv"],
    typer.Option(
        metavar="NAME",
        show_default=False,
        rich_help_panel=SPEED,
        help="resident: images in memory; ffcv: from a prepared file; auto: resident where they fit. Same numbers.",
    ),
]
CompileOption = Annotated[
    bool, typer.Option("--compile", metavar="", rich_help_panel=SPEED, help="Train through torch.compile.")
]
KeepWeightsOption = Annotated[
    bool,
    typer.Option("--keep-weights", metavar="", rich_help_panel=SAVING, help="Final weights, in weights/RUN_ID.pt."),
]
ProbesOption = Annotated[
    bool,
    typer.Option(
        metavar="",
        rich_help_panel=MEASURING,
        show_default=False,
        help="Measure attention before training and after each epoch that is evaluated. Default: on.",
    ),
]
KeepMapsOption = Annotated[
    bool,
    typer.Option(
        "--keep-maps",
        metavar="",
        rich_help_panel=MEASURING,
        help="Keep attention maps of before and after training. Recorded runs are not repeated for them.",
    ),
]
MapsAtOption = Annotated[
    list[int] | None,
    typer.Option(min=1, metavar="EPOCH", rich_help_panel=MEASURING, help="Maps after this epoch too. Repeatable."),
]
TrackOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", rich_help_panel=SAVING, help="Log to tensorboard or wandb as well; several: a,b."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", metavar="", rich_help_panel=WHAT, help="Show the plan and stop.")
]
BriefOption = Annotated[
    bool,
    typer.Option(
        "--brief", metavar="", rich_help_panel=WHERE, help="Print a line per row and dataset, not one per run."
    ),
]
DownloadOption = Annotated[
    bool,
    typer.Option(metavar="", rich_help_panel=WHERE, show_default=False, help="Download missing datasets. Default: on."),
]
