"""The run_ids of all grids are frozen: they decide what counts as recorded already.

`python -m tests.golden.test_run_ids` adds those of new grids and of new runs of a grid, and changes none.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.golden.cli import ROOT, answer

FILE = Path(__file__).with_name("frozen_run_ids.json")
SCHEMA = "1"
WHAT_TO_DO = (
    "a default, a recipe, a grid or the hash has changed, and what is recorded already would no longer be found, or be "
    "taken for something else. If it was not meant, undo it. If a default or a meaning has to change, raise the schema "
    "version and freeze the new ids beside the old ones"
)


def current() -> dict[str, list[str]]:
    """Return the run_ids of each grid, in the order of its plan."""
    names = sorted(path.stem for path in (ROOT / "benchmark/grids").glob("*.yaml"))
    return {name: re.findall(r"\b[0-9a-f]{16}$", answer(f"vitinit plan {name}"), re.MULTILINE) for name in names}


def test_the_run_ids_of_all_grids_are_the_frozen_ones() -> None:
    """In a process of its own: to a pipe, and no terminal of another test, a plan prints whole run_ids."""
    command = [sys.executable, "-m", "tests.golden.test_run_ids", "--print"]
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(FILE.read_text())[SCHEMA], WHAT_TO_DO


if __name__ == "__main__" and "--print" in sys.argv:
    print(json.dumps(current()))
elif __name__ == "__main__":
    frozen = json.loads(FILE.read_text())
    for grid, run_ids in current().items():
        if set(frozen[SCHEMA].get(grid, [])) <= set(run_ids):
            frozen[SCHEMA][grid] = run_ids
    FILE.write_text(json.dumps(frozen, indent=1) + "\n")
