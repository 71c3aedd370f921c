"""`vitinit slurm`: the cluster's side of a study. Imports no torch."""

from __future__ import annotations

from pathlib import Path

import typer

from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.launching import jobs
from vitinit.runners.options import LOCAL, GridArgument, ResultsOption, console
from vitinit.slurm import jobs as slurm_jobs

slurm_app = typer.Typer(help="Jobs of a cluster: cancel them.", no_args_is_help=True)


@slurm_app.callback()
def _group() -> None:
    """Keep `cancel` a command of its own, as it is the only one."""


@slurm_app.command()
def cancel(grid: GridArgument, results: ResultsOption = LOCAL) -> None:
    """Cancel all jobs of a grid. Its runs write a checkpoint, and the same `run` command resumes them."""
    study = Path(grid).stem if grid.endswith((".yaml", ".yml")) else grid
    known = jobs.look(results, study)
    if not known.submissions:
        raise VitinitError(f"no run of {study!r} in {results} was submitted to a cluster")
    if known.silence:
        raise VitinitError(f"cannot cancel jobs of {study!r}: {known.silence}")
    slurm_jobs.cancel(known.alive)
    console.print(f"cancelled {count(len(known.alive), 'job')}" if known.alive else "no job of it is left to cancel")
