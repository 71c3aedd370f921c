"""The call that a job makes, between submitit's start and the function that was submitted."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from submitit.helpers import TorchDistributedEnvironment

from vitinit.slurm.jobs import preempted_current, requeue_current, restarts

REQUEUES = 3
"""So often a job may reach its limit before it has begun anything: a limit that is too short always would."""


class Task:
    """A function to be called in a job, where only `requeue_current` and the function itself requeue.

    submitit would requeue by rules of its own. And signals can come while the function is being imported, which takes
    long where disks are slow: so it is unpickled only when handlers are set.
    """

    def __init__(self, function: Callable[[Any], object]) -> None:
        self.pickled = pickle.dumps(function)

    def __call__(self, pickled_argument: bytes) -> None:
        """Call the function; in the job."""
        for number in (signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, _leave)
        function, argument = pickle.loads(self.pickled), pickle.loads(pickled_argument)
        try:
            function(argument)
        finally:  # the end is near anyway; what has ended must not be requeued
            for number in (signal.SIGUSR2, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)


def export_ranks() -> tuple[int, int]:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in a job, as torchrun would.

    Returns:
        Rank of this process, and how many processes the job has.
    """
    # Which GPUs a process sees is for the cluster to say.
    found = TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
    return found.rank, found.world_size


def _leave(number: int, frame: FrameType | None) -> None:
    """Have the job start again, unless it is ending anyway: SIGTERM also comes when another process has failed."""
    if os.environ.get("SLURM_PROCID", "0") != "0":
        return  # what rank 0 does ends this process too; to end before it would end the job as failed
    again = number == signal.SIGUSR2 and restarts() < REQUEUES
    requeued = (again or preempted_current()) and requeue_current()
    print(f"{signal.Signals(number).name} while nothing was at work; requeued: {requeued}", file=sys.stderr)
    sys.exit(0 if requeued else 1)
