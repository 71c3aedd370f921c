"""The process of a job without a cluster."""

import yaml

from tests.held import HELD
from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.spec import InitializerSpec
from vitinit.runners.basics.environment import source_hash
from vitinit.runners.basics.setting import Execution, Setting
from vitinit.runners.launching.work import Queue

JOB = yaml.safe_load("""
SLURM_JOB_ID: "7"
SLURM_NTASKS: "1"
SLURM_JOB_NUM_NODES: "1"
SLURM_NODEID: "0"
SLURM_PROCID: "0"
SLURM_LOCALID: "0"
SLURM_JOB_NODELIST: localhost
""")


def todo(root):
    """Return the work of one run."""
    cell = grid.load("smoke").cells[0]
    spec = cell.spec.model_copy(update={"base": InitializerSpec(name=HELD)})
    code = {"source": source_hash()}
    setting = Setting(root, "smoke", root, Execution("cpu", 1, "slurm"), code, 0.0)
    return Queue((Cell(cell.row, spec),), setting)
