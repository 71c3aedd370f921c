"""The processes of one job, told about each other as torchrun would."""

from __future__ import annotations

from submitit.helpers import TorchDistributedEnvironment


def export() -> tuple[int, int]:
    """Set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, in a job.

    Returns:
        Rank of this process, and how many processes the job has.
    """
    # Which GPUs a process sees is for the cluster to say.
    found = TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
    return found.rank, found.world_size
