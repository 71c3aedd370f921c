"""Carrying out runs one after the other, in this process or as one of several that do so together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from vitinit.benchmark.grids.schema import Cell
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import End, Event, Execution, Setting, Unfinished
from vitinit.runners.basics.stop import Stop, Stopped, on_signals
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.carry_out import Crowded, carry_out
from vitinit.runners.training.distributed import World, joined


def _nothing(_: object) -> None:
    """Nobody wants to know."""


def carry_out_together(
    cells: list[Cell], setting: Setting, stop: Stop, on_event: Callable[[Event], None] = _nothing
) -> Iterator[End]:
    """Carry out runs, one after the other, as one of the processes that torchrun's environment variables describe.

    For the tasks of a cluster job: every task calls this with the same runs, and all come to the same ends. A task
    that is alone (no WORLD_SIZE, or 1) carries them out by itself. When a task is asked to stop, all save and end: the
    run in progress ends as `stopped`, and nothing more follows.

    Args:
        cells: the runs.
        setting: where and how. Its `execution` says on which device; how many processes there are, on how many
            machines and with how many threads is found out here.
        stop: ends it; any task may be asked. See `runners.basics.stop.on_signals`.
        on_event: told what the runs have to say, on rank 0 only.

    Yields:
        How each run ended.

    Raises:
        VitinitError: the processes cannot come together, or the results folder cannot be written.
    """
    with joined(setting.execution.device) as world:
        setting = replace(setting, execution=shared(setting.execution, world))
        yield from in_turn(cells, setting, stop, on_event, world)


def in_turn(
    cells: Iterable[Cell],
    setting: Setting,
    stop: Stop,
    on_event: Callable[[Event], None],
    world: World,
    on_start: Callable[[Cell], None] = _nothing,
) -> Iterator[End]:
    """Carry out runs one after the other, in all processes of a world; after a stop, nothing more follows.

    Raises:
        VitinitError: in all processes: the results folder cannot be written.
    """
    for cell in cells:
        on_start(cell)
        end = to_its_end(cell, setting, Stop(parent=stop), on_event, world)
        stopping = world.agreed(stop)
        yield end
        if stopping:
            return


def to_its_end(cell: Cell, setting: Setting, stop: Stop, on_event: Callable[[Event], None], world: World) -> End:
    """Carry out a run; that it was stopped or is another launcher's is an end too.

    Raises:
        VitinitError: the results folder cannot be written.
    """
    try:
        return carry_out(cell, setting, stop, on_event, world)
    except claims.Taken as taken:
        return Unfinished(cell.spec.run_id, "elsewhere", str(taken))
    except Crowded as crowded:
        return Unfinished(cell.spec.run_id, "crowded", str(crowded))
    except Stopped as stopped:
        return Unfinished(cell.spec.run_id, "stopped", str(stopped))
    except OSError as error:
        raise VitinitError(f"{cell.describe()}: {error}") from None


@contextmanager
def led(device: str) -> Iterator[World]:
    """The processes of one command: rank 0 plans, and the others `follow` it until its context ends."""
    with joined(device) as world:
        try:
            yield world
        finally:
            if world.rank == 0:
                world.broadcast()


def lead(cells: list[Cell], setting: Setting, world: World) -> None:
    """Tell the processes that follow which runs come next; all then take them in turn."""
    world.broadcast((cells, setting))


def follow(world: World) -> None:
    """Carry out, with rank 0, the runs that it says, until it has no more. It reports what goes wrong, too."""
    stop = Stop()
    with on_signals(stop, impatient=False):
        while work := world.broadcast():
            cells, setting = work
            try:
                for _ in in_turn(cells, setting, stop, _nothing, world):
                    pass
            except VitinitError:
                pass


def shared(execution: Execution, world: World) -> Execution:
    """How the processes of a world carry out a run, each with its share of the cores."""
    return replace(execution, threads=world.threads, processes=world.size, nodes=world.nodes)
