"""The process of a job without a cluster."""

import os
import pickle
import signal
from pathlib import Path

from tests.held import HELD, HOLD
from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.spec import InitializerSpec
from vitinit.runners.basics.environment import source_hash
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.launching.cluster import work_in_job
from vitinit.runners.launching.work import Work

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


def written(root: Path) -> Path:
    """Write the work of one run, which waits in its second epoch where `carried_out` carries it out."""
    cell = grid.load("smoke").cells[0]
    spec = cell.spec.model_copy(update={"base": InitializerSpec(name=HELD)})
    code = {"source": source_hash()}
    setting = Setting(root, "smoke", root, Execution("cpu", 1, "slurm"), code, 0.0)
    path = root / "work.pickle"
    path.write_bytes(pickle.dumps(Work((Cell(cell.row, spec),), setting)))
    return path


def carried_out(root: Path, path: str) -> None:
    """Carry it out as a job would, with the commands of SLURM that are on the path."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the fork server may be that of a launch, which blocks signals
    os.environ |= JOB | {"PATH": path, HOLD: str(root / "hold")}
    (root / "hold").touch()
    work_in_job(written(root))
