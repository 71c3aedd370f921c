"""The one exception for everything a user can put right, and the sentence for an unknown name. Imports no torch."""

from __future__ import annotations

import codecs
import difflib
import io
import reprlib
import sys
from collections.abc import Iterable

from pydantic import ValidationError

_BOUNDED = reprlib.Repr()
"""Text of a value from a file: short, whatever the value. Aliases let a few lines of YAML name billions of items."""
_BOUNDED.maxlevel = 2
_BOUNDED.maxstring = _BOUNDED.maxother = 120


def plain(text: str, width: int | None = None) -> str:
    """Foreign text (names, messages and reasons from files) made safe to print, on one line.

    White space is collapsed and everything unprintable is replaced by `?`: a terminal obeys escape sequences, whoever
    wrote them. Cut at `width` characters. Markup of rich or LaTeX is left to those who print with them.
    """
    line = " ".join("".join(char if char.isprintable() or char.isspace() else "?" for char in text).split())
    return line if width is None or len(line) <= width else line[: width - 1].rstrip() + "…"


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


MAX_MESSAGE = 4_000
"""Letters: a message that names what somebody gave may be as long as that."""


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """A minus stays a minus; anything else that cannot be encoded is `?`."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(MINUS.get(char, "?") for char in error.object[error.start : error.end]), error.end


MINUS = {"\u2212": "-", "\u2013": "-"}
"""`?` for a sign would change a number."""
codecs.register_error("vitinit", _nearest)


def forgiving_terminal() -> None:
    """From here on, what the terminal's encoding lacks is printed as `?`, where Python would raise; a minus as `-`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="vitinit")


class VitinitError(Exception):
    """Bad input or a state the user can mend. The message is one line: what is wrong, where, what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message, MAX_MESSAGE))


class BrokenFile(VitinitError):
    """A file that brings initialisers cannot be used: that is no fault of who has asked for one."""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> VitinitError:
    """The error for a name that is not in `valid`: the nearest valid one, then the list."""
    names = sorted(valid)
    near = difflib.get_close_matches(name[:200], names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return VitinitError(f"unknown {kind} {_BOUNDED.repr(name)}{hint} available: {', '.join(names) or 'none'}")


def _key(key: int | str) -> str:
    """A key, which may be any text of the user's."""
    short = isinstance(key, int) or (key.strip() and key.isprintable() and len(key) <= 80)
    return str(key) if short else _BOUNDED.repr(key)


def _field(loc: tuple[int | str, ...], numbers: set[tuple[int | str, ...]]) -> str:
    """Where a value is, with dots; places in lists count from 1, keys of mappings that are `numbers` stay."""
    keys = (key + 1 if isinstance(key, int) and loc[:at] not in numbers else key for at, key in enumerate(loc, 1))
    return ".".join(map(_key, keys))


def explain(error: ValidationError, where: str, fields: Iterable[str] = ()) -> VitinitError:
    """One line for a pydantic error: each field, what was given and what is allowed.

    Args:
        error: what pydantic says.
        where: what was read.
        fields: those that it may have, where an unknown one is to be answered with them.
    """
    parts, items = [], error.errors(include_url=False)
    numbers = {item["loc"][:-1] for item in items if item["loc"][-1:] == ("[key]",)}
    for item in items:
        field = _field(item["loc"], numbers)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden" and fields and len(item["loc"]) == 1:
            parts.append(str(unknown_name("field", field, fields)))
            continue
        if item["type"] == "extra_forbidden":
            message = "is not a field here"
        elif item["type"] == "union_tag_invalid":
            valid = str(item["ctx"]["expected_tags"]).replace("'", "").split(", ")
            message = str(unknown_name("name", str(item["ctx"]["tag"]), valid))
        elif item["type"] == "less_than_equal" and item["ctx"]["le"] > 1e6:
            message = f"Input should be less than or equal to {item['ctx']['le']:g}"
        given = (
            ""
            if item["type"] == "missing" or isinstance(item["input"], dict)
            else f" (given: {_BOUNDED.repr(item['input'])})"
        )
        parts.append(f"{field}: {message}{given}" if field else message)
    return VitinitError(f"{where}: {'; '.join(parts)}")
