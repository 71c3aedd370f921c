"""Stopping is normal: a run that is asked to stop saves where it is and ends within seconds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vitinit.initializers.errors import VitinitError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP)
"""Signals that request a stop: Ctrl-C, `kill`, a closed terminal, and a cluster before a limit or preemption."""


class Stopped(Exception):
    """A run ended before its last epoch because it was asked to; the same command goes on with it."""


class Refused(VitinitError):
    """Data that cannot be read here. No run is to blame, so none is recorded as failed."""


class BrokenDevice(VitinitError):
    """A GPU that cannot compute. No run is to blame, so none is recorded as failed."""


class Stop:
    """A request to stop. Signals and the heartbeat make it; a run looks at it between steps.

    Args:
        wake: called with the first request, for a process that waits for something else.
        parent: a request that counts for this one too.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None, parent: Stop | None = None) -> None:
        self._reason, self._wake, self._parent = "", wake, parent

    @property
    def reason(self) -> str:
        """Reason for the stop; empty when none was requested."""
        return self._reason or (self._parent.reason if self._parent else "")

    def request(self, reason: str) -> None:
        """Ask for a stop; the first reason stays."""
        if not self._reason:
            self._reason = reason
            self._wake()

    def check(self) -> None:
        """Raise Stopped when a stop was asked for."""
        if self.reason:
            raise Stopped(self.reason)


@contextmanager
def on_signals(stop: Stop) -> Iterator[None]:
    """Turn signals into a request to stop; those that this process was started to ignore (nohup) stay ignored.

    Another thread than the main one gets no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]

    def handle(number: int, frame: object) -> None:
        stop.request(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
