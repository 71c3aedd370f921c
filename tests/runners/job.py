"""The process of a job without a cluster."""

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.fitting import resolve_initializer
from vitinit.benchmark.grids.schema import Cell
from vitinit.initializers.registry import Initializer
from vitinit.runners.basics.environment import source_hash
from vitinit.runners.basics.setting import Execution, SaveInterval, Setting
from vitinit.runners.launching.cluster import Pack, carry_out_pack


class Slow(Initializer):
    """Leaves the model as it is, and takes longer than any job."""

    name: ClassVar[str] = "slow"
    touches: ClassVar[tuple[str, ...]] = ()
    deterministic: ClassVar[bool] = True

    def apply(self, model, generator, progress):
        for step in range(3000):
            progress(step, 3000)
            time.sleep(0.1)


def pack(root: Path, slow: bool, device: str = "cpu") -> Pack:
    cell = grid.load("smoke").cells[0]
    method = resolve_initializer({"name": "tests.runners.job:Slow"}, "method") if slow else None
    recipe = cell.spec.recipe.model_copy(update={"epochs": 1000})
    spec = cell.spec.model_copy(update={"method": method, "recipe": recipe})
    setting = Setting(root, "smoke", root, Execution(device, 1, "slurm"), {}, SaveInterval(steps=1))
    return Pack((Cell(cell.row, spec),), setting, 1, source_hash())


JOB = {
    "SUBMITIT_EXECUTOR": "slurm",
    "SLURM_JOB_ID": "7",
    "SLURM_NTASKS": "1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_JOB_NODELIST": "localhost",
}


def carried_out(root: Path, slow: bool, path: str, device: str = "cpu", restarts: int = 0) -> None:
    """Carry one run out as a job would, with the commands of SLURM that are on the path."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the fork server may be that of a launch, which blocks signals
    os.environ |= JOB | {"PATH": path, "SLURM_RESTART_COUNT": str(restarts)}
    carry_out_pack(pack(root, slow, device))
