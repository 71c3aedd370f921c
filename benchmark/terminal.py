"""Printing on a terminal: the one place that makes text from records and grids harmless, and that knows the width."""

import sys
from typing import Any

from rich.console import Console, ConsoleDimensions
from rich.text import Text

from vitinit.initializers.errors import printable

NEVER_FOLDED = 100_000
"""Columns where there is no terminal: a pipe or a file has no width, and lines and paths in it stay whole."""


class Terminal(Console):
    """Console to which every string is foreign: one line of printable text without markup.

    That holds for cells and titles of tables, too. A style is an argument.
    """

    def __init__(self, width: int | None = None) -> None:
        super().__init__(highlight=False, emoji=False, markup=False, width=width)

    @property  # type: ignore[misc]
    def size(self) -> ConsoleDimensions:
        """Return what it has now: a terminal may be resized, and the output turned to a file."""
        if self._width or (sys.stdout and sys.stdout.isatty()):
            return super().size
        return ConsoleDimensions(NEVER_FOLDED, 25)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as rich prints it, made harmless."""
        return super().render_str(printable(text), **{**options, "markup": False})

    @property
    def room(self) -> int | None:
        """Width that lines are folded to, on a terminal or where COLUMNS is set; None where nothing is folded."""
        return self.width if self.width < NEVER_FOLDED else None


def duration(seconds: float) -> str:
    """Return a time in the two units that matter."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
