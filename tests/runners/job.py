"""A job's process without a cluster: `python -m tests.runners.job ROOT METHOD` carries one run out as a job would."""

import sys
import time
from pathlib import Path
from typing import ClassVar

from benchmark.grids import grid
from benchmark.grids.fitting import resolve_initializer
from benchmark.grids.schema import Cell
from initializers.registry import Initializer
from runners.basics.environment import source_hash
from runners.basics.setting import Execution, Interval, Setting
from runners.launching.cluster import Pack, carry_out_pack


class Slow(Initializer):
    """Leaves the model as it is, and takes longer than any job."""

    name: ClassVar[str] = "slow"
    touches: ClassVar[tuple[str, ...]] = ()
    deterministic: ClassVar[bool] = True

    def apply(self, model, generator, progress):
        for step in range(3000):
            progress(step, 3000)
            time.sleep(0.1)


def pack(root: Path, slow: bool) -> Pack:
    cell = grid.load("smoke").cells[0]
    method = resolve_initializer({"name": "tests.runners.job:Slow"}, "method") if slow else None
    recipe = cell.spec.recipe.model_copy(update={"epochs": 1000})
    spec = cell.spec.model_copy(update={"method": method, "recipe": recipe})
    setting = Setting(root, "smoke", root, Execution("cpu", 1, "slurm"), {}, Interval(steps=1))
    return Pack((Cell(cell.row, spec),), setting, 1, source_hash())


if __name__ == "__main__":
    carry_out_pack(pack(Path(sys.argv[1]), sys.argv[2] == "slow"))
