"""Containment of what code of somebody's raises to end the process. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vitinit.initializers.errors import ExitRequested


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Turn an exit that a plug-in asks for (`sys.exit`) into an error; Ctrl-C goes on.

    Args:
        what: who asks for it, as an error message begins.

    Raises:
        ExitRequested: instead.
    """
    try:
        yield
    except SystemExit as error:
        said = f": {error}" if str(error) else ""
        raise ExitRequested(f"{what} raised SystemExit{said}, which would end the whole program") from error
