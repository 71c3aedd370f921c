"""The executor `inline`: runs one after the other, in this process or in several that torchrun or a job started."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from vitinit.benchmark.grids.schema import Cell
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import End, Event, Execution, Setting
from vitinit.runners.basics.stop import Stop, on_signals
from vitinit.runners.launching.work import Queue
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.terminal.display import Display
from vitinit.runners.training.distributed import ALONE, World, joined


@dataclass(frozen=True)
class Inline:
    """Runs in this process. In a world of several it is rank 0, and the others `follow`."""

    world: World = ALONE

    def ends(self, queue: Queue, display: Display, stop: Stop) -> Generator[End, None, None]:
        """See `work.Executor`."""
        stop, setting = Stop(parent=stop), queue.work.setting

        def cells() -> Iterator[Cell]:
            while not stop.reason and (cell := queue.next()):
                self.world.broadcast((cell, setting))
                yield cell

        with on_signals(stop):
            yield from in_turn(cells(), setting, stop, display.event, self.world)
            if stop.reason:
                raise KeyboardInterrupt(stop.reason)


def in_turn(
    cells: Iterable[Cell],
    setting: Setting,
    stop: Stop,
    on_event: Callable[[Event], None] = lambda event: None,
    world: World = ALONE,
) -> Iterator[End]:
    """Carry out runs one after the other, in all processes of a world; after a stop, nothing more follows.

    Raises:
        VitinitError: in all processes: the results folder cannot be written.
    """
    for cell in cells:
        end = carry_out(cell, setting, Stop(parent=stop), on_event, world)
        stopping = world.agreed(stop)
        yield end
        if stopping:
            return


@contextmanager
def led(device: str) -> Iterator[World]:
    """Join the processes that torchrun's environment variables describe; rank 0 leads until its context ends."""
    with joined(device) as world:
        try:
            yield world
        finally:
            if world.rank == 0:
                world.broadcast()


def follow(world: World) -> None:
    """Carry out, with rank 0, the runs that it takes, until it has no more. It reports what goes wrong, too."""
    stop = Stop()
    with on_signals(stop):
        while task := world.broadcast():
            cell, setting = task
            with suppress(VitinitError):
                list(in_turn([cell], setting, stop, world=world))


def shared(execution: Execution, world: World) -> Execution:
    """Return how the processes of a world carry out a run, each with its share of the cores."""
    return replace(execution, threads=world.threads, processes=world.size, nodes=world.nodes)
