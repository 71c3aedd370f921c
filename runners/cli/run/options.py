"""The options of `vitinit run`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

ExecutorOption = Annotated[
    Literal["auto", "inline", "local", "slurm"],
    typer.Option(
        help="inline: one run after the other in this process. local: several processes here. slurm: jobs of a "
        "cluster. auto: slurm where sbatch answers, else local."
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Runs at once, here or in each job. Default: one a core; 1 on a GPU.")
]
RunsPerJobOption = Annotated[
    int | None, typer.Option(min=1, help="Default: as many as keep a job busy for ten minutes, where measured.")
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the jobs and say what becomes of the runs.")]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"], typer.Option(help="auto: cuda where there is one, or where the profile asks.")
]
RetryOption = Annotated[bool, typer.Option("--retry-failed", help="Run again what failed; otherwise a failure stays.")]
ForceOption = Annotated[
    list[str] | None,
    typer.Option(metavar="RUN_ID", help="Begin this run anew; its record is kept under another name. Repeatable."),
]
DeterministicOption = Annotated[
    bool, typer.Option("--deterministic", help="The same bits every time on a GPU too; slower.")
]
CheckpointMinutesOption = Annotated[float, typer.Option(min=0, help="Save a run after so many minutes.")]
CheckpointStepsOption = Annotated[int | None, typer.Option(min=1, help="And after so many optimiser steps.")]
MicroBatchOption = Annotated[
    int | None, typer.Option(min=1, help="At most this many images at once in a process; the batch stays.")
]
LoaderOption = Annotated[
    Literal["auto", "resident", "ffcv"],
    typer.Option(
        help="resident: decoded images in memory. ffcv: read from the disk, as vitinit data prepare has left them. "
        "auto: resident where they take at most a quarter of the device's memory. The numbers are the same."
    ),
]
CompileOption = Annotated[
    bool, typer.Option("--compile", help="Train through torch.compile; vitinit speed measures what it gains.")
]
KeepWeightsOption = Annotated[
    bool, typer.Option("--keep-weights", help="Keep final weights: weights/RUN_ID.pt beside the records.")
]
ProbesOption = Annotated[
    bool, typer.Option(help="Measure attention before the first epoch and after each one; the training is the same.")
]
KeepMapsOption = Annotated[
    bool,
    typer.Option(
        "--keep-maps",
        help="Keep attention maps, and what CKA needs, before and after training: maps/RUN_ID.npz beside the "
        "records, 11 MB for a ViT-T of 256 tokens, 0.6 MB for a run of grid small. A run that is recorded already "
        "is not repeated for them.",
    ),
]
MapsAtOption = Annotated[
    list[int] | None, typer.Option(min=1, metavar="EPOCH", help="With --keep-maps: after it too. Repeatable.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the plan, for a cluster the script and an estimate too, and stop.")
]
DownloadOption = Annotated[bool, typer.Option(help="Download datasets that are not there.")]
