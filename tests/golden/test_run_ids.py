"""The run_ids of all grids are frozen: they decide what counts as recorded already.

`python -m tests.golden.test_run_ids` adds those of new grids and of new runs of a grid, and changes none.
"""

import json
from pathlib import Path

from vitinit.benchmark.grids import grid

FILE = Path(__file__).with_name("frozen_run_ids.json")
FROZEN = json.loads(FILE.read_text())
SCHEMA = "1"
WHAT_TO_DO = (
    "a default, a recipe, a grid or the hash has changed, and what is recorded already would no longer be found, or be "
    "taken for something else. If it was not meant, undo it. If a default or a meaning has to change, raise the schema "
    "version and freeze the new ids beside the old ones"
)


def current():
    """Return the run_ids of each grid, in the order of its plan."""
    return {name: [cell.run_id for cell in grid.load(name).cells] for name in grid.names()}


def test_the_run_ids_of_all_grids_are_the_frozen_ones(monkeypatch):
    monkeypatch.setattr(grid, "misfit", lambda *_: "not asked")  # which takes the longest, and is in no run_id
    monkeypatch.setattr(grid, "_answers_folder", lambda: None)  # what other tests find there is asked
    assert current() == FROZEN[SCHEMA], WHAT_TO_DO


if __name__ == "__main__":
    for name, run_ids in current().items():
        if set(FROZEN[SCHEMA].get(name, [])) <= set(run_ids):
            FROZEN[SCHEMA][name] = run_ids
    FILE.write_text(json.dumps(FROZEN, indent=1) + "\n")
