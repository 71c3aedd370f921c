"""A module whose import takes long, the first time a job starts."""

import os
import time
from pathlib import Path

from calls import write

if "SLURM_JOB_ID" in os.environ and "SLURM_RESTART_COUNT" not in os.environ:
    print("importing", flush=True)
    time.sleep(60)


def restarts(given: tuple[Path, str]) -> None:
    write(given[0], "restarts", os.environ.get("SLURM_RESTART_COUNT", "0"))
