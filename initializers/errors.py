"""The one exception for everything a user can put right, and the sentence for an unknown name. Imports no torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import ValidationError


class VitinitError(Exception):
    """Bad input or a state the user can mend. The message is one line: what is wrong, where, what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> VitinitError:
    """The error for a name that is not in `valid`: the nearest valid one, then the list."""
    names = sorted(valid)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return VitinitError(f"unknown {kind} {name!r}{hint} available: {', '.join(names) or 'none'}")


def explain(error: ValidationError, where: str) -> VitinitError:
    """One line for a pydantic error: each field, what was given and what is allowed."""
    parts = []
    for item in error.errors(include_url=False):
        field = ".".join(str(key) for key in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "is not a field here"
        given = "" if item["type"] == "missing" or isinstance(item["input"], dict) else f" (given: {item['input']!r})"
        parts.append(f"{field}: {message}{given}" if field else message)
    return VitinitError(f"{where}: {'; '.join(parts)}")
