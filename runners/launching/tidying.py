"""Remove leftovers of killed runs, and outdated state of runs that begin anew, before a launch."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.stop import Stop
from vitinit.runners.launching.plan import Planned
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.outcome import skip


def begin_anew(cells: list[Cell], store: Store, study: str) -> None:
    """Put runs back to their start: records are set aside under another name, checkpoints are removed.

    Raises:
        VitinitError: another launcher is carrying a run out, or a file cannot be renamed.
    """
    for cell in cells:  # all of them, before the first is touched
        if owner := claims.live(claims.folder(store.root, study, cell.run_id)):
            raise VitinitError(f"--force {cell.run_id}: being run by {owner.describe()}")
    for cell in cells:
        try:
            with claims.held(claims.folder(store.root, study, cell.run_id), Stop()) as claim:
                for checkpoint in claim.path.parent.glob("step-*.ckpt"):
                    checkpoint.unlink()
                store.supersede(study, cell.run_id)
                claim.finish()
        except (OSError, claims.Taken) as error:
            raise VitinitError(f"--force {cell.run_id}: {error}") from None


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
