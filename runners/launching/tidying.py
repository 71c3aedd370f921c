"""Remove leftovers of killed runs, and outdated state of runs that begin anew, before a launch."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vitinit.benchmark.datasets.registry import unavailable
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.stop import Stop
from vitinit.runners.launching.plan import Planned
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.outcome import skip


def forced(prefixes: list[str], cells: list[Cell], data_dir: Path) -> dict[str, Cell]:
    """By prefix of `--force`, the run that it names.

    Raises:
        VitinitError: a prefix names no run of the grid or several, or the run cannot be carried out now.
    """
    runs = {}
    for prefix in prefixes:
        found = [cell for cell in cells if cell.run_id.startswith(prefix)]
        if len(found) != 1:
            how_many = (
                f"{len(found)} runs of this grid" if found else "no run of this grid, as --seeds and --only leave it"
            )
            raise VitinitError(f"--force {prefix}: {how_many}; see: vitinit plan")
        (cell,) = found
        if reason := cell.misfit or unavailable(cell.spec.dataset, data_dir):
            raise VitinitError(f"--force {prefix}: {reason}")
        runs[prefix] = cell
    return runs


def begin_anew(runs: dict[str, Cell], store: Store, study: str) -> None:
    """Put runs back to their start: records are set aside under another name, checkpoints are removed.

    Raises:
        VitinitError: another launcher is carrying a run out, or a file cannot be renamed.
    """
    for prefix, cell in runs.items():  # all of them, before the first is touched
        if owner := claims.live(claims.folder(store.root, study, cell.run_id)):
            raise VitinitError(f"--force {prefix}: being run by {owner.describe()}")
    for prefix, cell in runs.items():
        try:
            with claims.held(claims.folder(store.root, study, cell.run_id), Stop()) as claim:
                for checkpoint in claim.path.parent.glob("step-*.ckpt"):
                    checkpoint.unlink()
                store.supersede(study, cell.run_id)
                claim.finish()
        except OSError as error:
            raise VitinitError(f"--force {prefix}: {error}") from None
        except claims.Taken as taken:
            raise VitinitError(f"--force {prefix}: {taken}") from None


def record_skips(planned: list[Planned], store: Store, study: str) -> None:
    """Record which runs are skipped, and no longer those that are not."""
    for item in planned:
        if item.state == "skip":
            store.write(skip(item.cell, study, item.reason))
        else:
            store.unskip(study, item.cell.run_id)


def tidy(root: Path, study: str, done: set[str]) -> None:
    """Remove what recorded runs have left behind: they were killed between their record and their own tidying."""
    store = Store(root)
    for folder in (root / study / "unfinished").glob("*"):
        if folder.name in done:
            with contextlib.suppress(claims.Taken, VitinitError), claims.held(folder, Stop()) as claim:
                if isinstance(store.outcome(study, folder.name), RunRecord):
                    claim.finish()
