"""A run whose GPU breaks under it: no failure of the run the first time, and the job goes to another node."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.slurm import jobs as slurm_jobs
from vitinit.slurm.errors import SlurmError

if TYPE_CHECKING:
    import torch

    from vitinit.runners.basics.stop import BrokenDevice

MARK = "device-lost"
"""File in the folder of an unfinished run that has lost its device once."""
MOST_RESTARTS = 3
"""A job that has been started again so often is not requeued for a broken GPU: it meets the same node each time."""
TRIES = 5
"""Number of attempts to reach the controller before a job gives up."""


def to_blame(error: BaseException, device: torch.device, folder: Path) -> BrokenDevice | None:
    """Return the broken device behind an error of a run; None where the run is to blame.

    A run that loses a second device, which computed when the run began, breaks them: it has failed.

    Args:
        error: that ended the run.
        device: of the run.
        folder: of the unfinished run.
    """
    from vitinit.runners.basics import gpu

    found = gpu.after(error, device)
    mark = folder / MARK
    with suppress(OSError):
        if found and not mark.exists():
            mark.touch()
            return found
        mark.unlink(missing_ok=True)
    return None


def requeue() -> bool:
    """Requeue this job, which a broken GPU has ended; where that is not possible, say why.

    Returns:
        Whether the cluster starts it again.
    """
    why = f"it was started {MOST_RESTARTS + 1} times; sbatch: {{exclude: NODE}} in the profile keeps it from a node"
    if slurm_jobs.restarts() < MOST_RESTARTS:
        try:
            return persistently(slurm_jobs.requeue_current)
        except SlurmError as refused:
            why = str(refused)
    print(f"the job is not requeued: {why}", flush=True)
    return False


def persistently(ask: Callable[[], bool]) -> bool:
    """Ask the controller with retries; it may be busy for a moment just when it preempts many jobs.

    Raises:
        SlurmError: it has not answered in several tries.
    """
    for _ in range(TRIES - 1):
        with suppress(SlurmError):
            return ask()
        time.sleep(1)
    return ask()
