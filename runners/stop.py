"""Stopping is normal: a run that is asked to stop saves where it is and ends within seconds."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""What asks a run to stop: Ctrl-C, `kill`, and what clusters send ahead of a time limit or a preemption."""


class Stopped(Exception):
    """A run ended before its last epoch because it was asked to; the same command goes on with it."""


class Stop:
    """A request to stop. Signals and the heartbeat make it; a run looks at it between steps.

    Args:
        wake: called with the first request, for a process that waits for something else.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self.reason, self._wake = "", wake

    def request(self, reason: str) -> None:
        """Ask for a stop; the first reason stays."""
        if not self.reason:
            self.reason = reason
            self._wake()

    def check(self) -> None:
        """Raise Stopped when a stop was asked for."""
        if self.reason:
            raise Stopped(self.reason)


@contextmanager
def on_signals(stop: Stop) -> Iterator[None]:
    """Turn signals into a request to stop. A second Ctrl-C does not wait: it is a KeyboardInterrupt."""

    def handle(number: int, frame: object) -> None:
        if stop.reason and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.request(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
