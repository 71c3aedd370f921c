"""`vitinit slurm`: the cluster's side of a study. Imports no torch."""

from __future__ import annotations

from pathlib import Path

import typer

from vitinit.initializers.errors import VitinitError, count
from vitinit.runners.launching import jobs
from vitinit.runners.options import LOCAL, GridArgument, ResultsOption, console
from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm import profiles

slurm_app = typer.Typer(help="Jobs of a cluster: profiles that they ask by; cancel them.", no_args_is_help=True)


@slurm_app.command("profiles")
def profiles_() -> None:
    """List the profiles that come with the project; copy one, change it, and name the file."""
    for name in profiles.names():
        console.print(f"{name}  {jobs.summary(profiles.load(name))}  {profiles.HERE / name}.yaml")


@slurm_app.command()
def cancel(grid: GridArgument, results: ResultsOption = LOCAL) -> None:
    """Cancel all jobs of a grid. Its runs write a checkpoint, and the same `run` command resumes them."""
    study = Path(grid).stem if grid.endswith((".yaml", ".yml")) else grid
    look = jobs.look(results, study)
    if not look.jobs:
        raise VitinitError(f"no run of {study!r} in {results} was submitted to a cluster")
    if look.silence:
        raise VitinitError(f"cannot cancel jobs of {study!r}: {look.silence}")
    slurm_jobs.cancel(look.states)
    runs = {run_id for job in look.jobs if job.job_id in look.states for run_id in job.run_ids}
    cancelled = f"cancelled {count(len(look.states), 'job')} with {count(len(runs), 'run')}"
    console.print(cancelled if look.states else "no job of it is left to cancel")
