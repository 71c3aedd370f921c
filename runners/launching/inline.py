"""The executor `inline`: runs one after the other, in this process or in several that torchrun or a job started."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.setting import End, Setting, Stop, on_signals
from vitinit.runners.launching.work import Executor, Queue
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.terminal.display import Display
from vitinit.runners.training.distributed import ALONE, World, joined


def inline(queue: Queue, display: Display, stop: Stop, world: World = ALONE) -> Generator[End, None, None]:
    """Carry out runs in this process; in a world of several it is rank 0, and the others follow. A `work.Executor`."""
    stop = Stop(parent=stop)
    with on_signals(stop):
        while not stop.reason and (cell := queue.next()):
            world.broadcast((cell, queue.work.setting))
            on_event = partial(display.event, cell.run_id)
            end = carry_out(cell, queue.work.setting, Stop(parent=stop), on_event, world)
            world.agreed(stop)
            yield end
        if stop.reason:
            raise KeyboardInterrupt(stop.reason)


@contextmanager
def led(setting: Setting) -> Iterator[tuple[Executor | None, Setting]]:
    """Join the processes that torchrun's environment variables describe, each with its share of the cores.

    Yields:
        In rank 0, which leads until the context ends, the executor, and the setting of its runs. In the others, once
        they have carried out, with rank 0, all runs that it took, None. They report what goes wrong, too.
    """
    with joined(setting.execution.device) as world:
        if world.rank:
            stop = Stop()
            with on_signals(stop):
                while task := world.broadcast():
                    cell, led_setting = task
                    with suppress(VitinitError):
                        carry_out(cell, led_setting, Stop(parent=stop), world=world)
                        world.agreed(stop)
            yield None, setting
            return
        shared = replace(setting.execution, threads=world.threads, processes=world.size, nodes=world.nodes)
        try:
            yield partial(inline, world=world), replace(setting, execution=shared)
        finally:
            world.broadcast()
