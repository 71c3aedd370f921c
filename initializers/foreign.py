"""Containment of what code of somebody's raises to end the process. Imports no torch."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from vitinit.initializers.errors import ExitRequested


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Turn an exit that a plug-in asks for (`sys.exit`, `raise KeyboardInterrupt`) into an error; Ctrl-C goes on.

    A KeyboardInterrupt counts as Ctrl-C where a signal arrived meanwhile, or where that cannot be known.

    Args:
        what: who asks for it, as an error message begins.

    Raises:
        Ended: instead.
    """
    arrived: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    can_come = before is not signal.SIG_IGN  # a shell starts background commands with it ignored
    watched = callable(before) and threading.current_thread() is threading.main_thread()

    def note(number: int, frame: object) -> None:
        arrived.append(number)
        before(number, frame)  # type: ignore[misc,operator,arg-type]

    if watched:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    except (SystemExit, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and (arrived or (can_come and not watched)):
            raise
        said = f": {error}" if str(error) else ""
        raise ExitRequested(f"{what} raised {type(error).__name__}{said}, which would end the whole program") from error
    finally:
        if watched and signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)
