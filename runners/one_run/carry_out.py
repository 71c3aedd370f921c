"""Carrying one run out: claimed, in one process or several, its end recorded whatever it is."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError, cause, located
from vitinit.runners.basics.gpu import out_of_memory
from vitinit.runners.basics.setting import End, Event, Setting, Unfinished
from vitinit.runners.basics.stop import BrokenDevice, Refused, Stop, Stopped
from vitinit.runners.one_run import claims, lost
from vitinit.runners.one_run.outcome import failure, final_outcome, record
from vitinit.runners.one_run.run import run
from vitinit.runners.tracking.tracking import Tracking
from vitinit.runners.training.checkpoint import Checkpoints
from vitinit.runners.training.distributed import ALONE, Failed, World
from vitinit.runners.training.train import Diverged

BEGIN = "begin"
"""Message of rank 0 to the others when it has claimed a run."""


def carry_out(
    cell: Cell,
    setting: Setting,
    stop: Stop,
    on_event: Callable[[Event], None] = lambda event: None,
    world: World = ALONE,
) -> End:
    """Claim a run, carry it out from its newest checkpoint on, and record it.

    Whatever goes wrong in the run itself ends in a failure record. Its checkpoints stay for the next attempt, unless it
    diverged: it would do so again. A run that was stopped (it has saved), or that is another launcher's, ends as
    `Unfinished`.

    Several processes call this for the same run and come to the same end. Rank 0 alone claims, initialises, saves,
    records and tells events. A stop that any of them is asked for stops all at the same step. Where one of them fails
    in the middle of the training the others cannot go on, and wait for it: it records the failure, which names its
    rank, and ends its process with exit code 1, so that the launcher (torchrun, or srun --kill-on-bad-exit) ends the
    others. Whatever happens, none waits for longer than `distributed.TIMEOUT`.

    Raises:
        VitinitError: the results folder cannot be written.
        BrokenDevice: the GPU does not compute; no run has failed.
    """
    if world.rank:
        return _help(cell, setting, stop, world)
    folder = claims.folder(setting.root, setting.study, cell.run_id)
    tracking = Tracking(cell, setting, on_event)
    end: End
    try:
        with claims.held(folder, stop, setting.code.get("source", "")) as claim:
            recorded = final_outcome(cell, setting)
            if isinstance(recorded, RunRecord):
                claim.finish()
            if recorded:
                raise claims.Taken("another launcher has recorded it")
            world.broadcast(BEGIN)

            def tell(event: Event) -> None:
                if row := event.epoch:
                    claim.report(row, cell.spec.recipe.epochs)
                on_event(event)
                tracking.event(event)

            checkpoints = Checkpoints(
                folder, setting.checkpoint_minutes, lambda text: on_event(Event(cell.run_id, trouble=text))
            )
            outcome: RunRecord | FailureRecord | None
            try:
                outcome = run(cell, setting, checkpoints, stop, tell, world)
            except (Stopped, BrokenDevice, Refused):
                raise
            except Failed as error:
                outcome = failure(cell, setting, error.kind, error.message, error.trace)
            except Exception as error:
                if world.size > 1 and not isinstance(error, Diverged):
                    _give_up(cell, setting, error, world, claim)
                if lost_device := lost.to_blame(error, world.device(setting.execution.device), folder):
                    raise lost_device from error
                outcome = failure(cell, setting, type(error).__name__, _message(error), traceback.format_exc())
            assert outcome
            if claim.lost():
                raise Stopped("another process has taken the run over")
            record(outcome, Store(setting.root), checkpoints)
            tracking.end(outcome)
            if isinstance(outcome, RunRecord) or outcome.error == Diverged.__name__:
                claim.finish()
            end = outcome
    except claims.Taken as taken:
        end = Unfinished(cell.run_id, "elsewhere", str(taken))
    except Stopped as stopped:
        end = Unfinished(cell.run_id, "stopped", str(stopped))
    except Exception as error:
        refused = error if isinstance(error, VitinitError) else VitinitError(f"{cell.describe()}: {cause(error)}")
        world.broadcast(refused)
        if isinstance(error, OSError):
            raise refused from None
        raise
    finally:
        tracking.end()
    world.broadcast(end)
    return end


def _help(cell: Cell, setting: Setting, stop: Stop, world: World) -> End:
    """Take the part of another rank in `carry_out`; rank 0 sends that the run begins, if it does, and its end."""
    end = world.broadcast()
    if end == BEGIN:
        try:
            run(cell, setting, None, stop, lambda event: None, world)
        except (Stopped, Diverged, Failed, BrokenDevice):
            pass  # rank 0 has raised the same
        except Exception as error:
            _give_up(cell, setting, error, world)
        end = world.broadcast()
    if isinstance(end, Exception):
        raise end
    assert isinstance(end, End)
    return end


def _message(error: Exception) -> str:
    """Return the message of an error, and where it comes from if that helps to mend it."""
    return str(error) if isinstance(error, VitinitError) or out_of_memory(error) else located(error)


def _give_up(
    cell: Cell, setting: Setting, error: Exception, world: World, claim: claims.Claim | None = None
) -> NoReturn:
    """End this process: it has failed where the others wait for it.

    They fail in turn when it is gone. Only the first one records its error; a broken GPU is no error of the run, and
    the job, where this is one, asks to be started again.
    """
    text, requeued = f"{world.name()}: {_message(error)}", False
    try:
        folder = claims.folder(setting.root, setting.study, cell.run_id)
        first = world.first_to_fail()
        lost_device = lost.to_blame(error, world.device(setting.execution.device), folder)
        if lost_device or first:
            print(f"{cell.describe()}: {lost_device or text}", file=sys.stderr, flush=True)
        if lost_device:
            requeued = setting.execution.executor == "slurm" and lost.requeue()
        elif first:
            Store(setting.root).write(failure(cell, setting, type(error).__name__, text, traceback.format_exc()))
        if claim:
            claim.release()
    finally:
        os._exit(0 if requeued else 1)  # an orderly end of the process would wait for the others
