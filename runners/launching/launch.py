"""Carrying out the runs of a study on this machine, in this process or in several.

Only a process that trains imports torch, which takes seconds: that of a run, or this one with the executor `inline`.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.records.store import Layout, Store
from vitinit.benchmark.spec import DatasetSpec, RunSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import End, Setting
from vitinit.runners.basics.stop import Stop, on_signals
from vitinit.runners.launching import processes
from vitinit.runners.one_run import claims
from vitinit.runners.terminal.display import Display

if TYPE_CHECKING:
    from vitinit.runners.training.distributed import World


def estimated_work(spec: RunSpec, images: int) -> float:
    """How long a run on so many images takes, in arbitrary units: images seen times operations of one image."""
    return spec.recipe.epochs * images * spec.model.forward_operations(classes=10)  # a head is small


@dataclass
class Tally:
    """What became of the runs of one launch."""

    finished: int = 0
    failures: list[str] = field(default_factory=list)
    """The run_ids of those that failed."""
    stopped: int = 0
    """Asked to stop, one by one; a stop of the whole launch is a KeyboardInterrupt."""
    elsewhere: int = 0
    """Another launcher was carrying them out."""

    @property
    def failed(self) -> int:
        """How many failed."""
        return len(self.failures)


def launch(
    cells: list[Cell],
    setting: Setting,
    workers: int,
    display: Display,
    world: World | None = None,
    stop: Stop | None = None,
    work: dict[str, float] | None = None,
    layout: Layout | None = None,
) -> Tally:
    """Carry out runs; each leaves a record.

    The executor `inline` runs one after the other in this process, or in all processes of a world, whose others follow
    this one. Any other keeps `workers` processes busy, a fresh one a run, each with its share of the cores; a process
    that dies becomes a failure record. Runs of other launchers are left to them, unless they come free. Of several runs
    on one GPU, those that it had no memory for are tried again one by one.

    Args:
        cells: the runs.
        setting: where and how.
        workers: how many at once; not with `inline`.
        display: told what happens.
        world: the processes that carry out a run together.
        stop: a request that counts besides the signals.
        work: how long each run takes by run_id, in any unit; the longest come first. None: every dataset is read to
            find out.
        layout: of the grid, to be put down beside the records. None: what stands there is left as it is.

    Raises:
        VitinitError: no dataset can be read to find out, or the results folder cannot be written.
        KeyboardInterrupt: on Ctrl-C, SIGTERM, SIGUSR2 or SIGHUP; runs in progress have saved where they were.
    """
    if work is None:
        work = checked_work(cells, setting, stop)
    check_writable(setting.root / setting.study)
    if layout:
        Store(setting.root).write_layout(setting.study, layout)
    # After the runs that train the first part of them. The longest first, so that none is left over alone; before them
    # what will fail at once, as its data cannot be read.
    turns = _turns(cells)
    cells = sorted(cells, key=lambda cell: (turns[cell.run_id], -(work[cell.run_id] or float("inf"))))
    tally = Tally()
    workers = 1 if setting.execution.executor == "inline" else workers

    def carry_out_all(cells: list[Cell]) -> Generator[End, None, None]:
        if setting.execution.executor == "inline":
            return _inline(cells, setting, display, world, stop)
        return processes.carry_out_all(cells, replace(setting, beside_others=workers > 1), workers, display, stop)

    with display:
        display.begin(cells, work)
        while cells:
            by_id = {cell.run_id: cell for cell in cells}
            elsewhere, crowded = [], []
            with contextlib.closing(carry_out_all(cells)) as ends:
                for end in ends:
                    if end.status == "elsewhere":
                        display.put_off(end.run_id, end.reason)
                        elsewhere.append(end)
                    elif end.status == "crowded":
                        display.put_off(end.run_id, end.reason)
                        crowded.append(by_id[end.run_id])
                    else:
                        display.end(end)
                        tally.finished += end.status == "done"
                        tally.failures += [end.run_id] if end.status == "failed" else []
                        tally.stopped += end.status == "stopped"
            cells = came_free([by_id[end.run_id] for end in elsewhere], setting, stop)
            free = {cell.run_id for cell in cells}
            for end in elsewhere:
                if end.run_id not in free:
                    display.end(end)
                    tally.elsewhere += 1
            if crowded:
                cells, workers = [*cells, *crowded], 1
    return tally


def _turns(cells: list[Cell]) -> dict[str, int]:
    """By run_id, how many runs come before a run that trains the first part of it too."""
    trunks = defaultdict(list)
    for cell in cells:
        trunks[cell.spec.trunk_id or cell.run_id].append(cell)
    in_order = (sorted(trunk, key=lambda cell: cell.spec.recipe.stable_epochs) for trunk in trunks.values())
    return {cell.run_id: turn for trunk in in_order for turn, cell in enumerate(trunk)}


def checked_work(cells: list[Cell], setting: Setting, stop: Stop | None = None) -> dict[str, float]:
    """How long each run takes by run_id, in arbitrary units; what would stop all of them is found on the way.

    Raises:
        VitinitError: see `preflight`.
        KeyboardInterrupt: as in `launch`.
    """
    images = _images(cells, setting, stop)
    return {cell.run_id: estimated_work(cell.spec, images[cell.spec.dataset]) for cell in cells}


def came_free(cells: list[Cell], setting: Setting, stop: Stop | None = None) -> list[Cell]:
    """Runs that other launchers had and have not ended; none once a stop is asked for.

    Waits for owners that are silent: they may be gone.
    """
    store = Store(setting.root)

    def ended(cell: Cell) -> bool:
        recorded = store.outcome(setting.study, cell.spec.run_id)
        failed = isinstance(recorded, FailureRecord) and recorded.written != setting.retried.get(cell.spec.run_id)
        return failed or isinstance(recorded, RunRecord)

    while not (stop and stop.reason):
        open_cells = [cell for cell in cells if not ended(cell)]
        folders = [claims.folder(setting.root, setting.study, cell.spec.run_id) for cell in open_cells]
        owners = [claims.live(folder, exact=True) for folder in folders]
        free = [cell for cell, owner in zip(open_cells, owners, strict=True) if owner is None]
        if free or all(map(claims.beating, folders)):
            return free
        time.sleep(1)
    return []


def check_writable(folder: Path) -> None:
    """Find out before hours of training, not after.

    Raises:
        VitinitError: records cannot be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0" * 2**16)
    except OSError as error:
        raise VitinitError(f"cannot write to the results folder {folder}: {error.strerror or error}") from None


def _inline(
    cells: list[Cell], setting: Setting, display: Display, world: World | None, parent: Stop | None
) -> Generator[End, None, None]:
    from vitinit.runners.launching.together import in_turn, lead
    from vitinit.runners.training.distributed import ALONE

    stop, world = Stop(parent=parent), world or ALONE
    with on_signals(stop, impatient=world.size == 1):
        lead(cells, setting, world)
        yield from in_turn(cells, setting, stop, display.event, world, display.start)
        if stop.reason:
            raise KeyboardInterrupt(stop.reason)


def _images(cells: list[Cell], setting: Setting, stop: Stop | None) -> dict[DatasetSpec, int]:
    if not cells:
        return {}
    if setting.execution.executor == "inline":
        from vitinit.runners.launching.preflight import preflight

        return preflight(cells, setting)
    return processes.training_images(cells, setting, stop)
