"""The one exception for everything a user can put right, and what errors say. Imports no torch."""

import codecs
import difflib
import errno
import io
import os
import reprlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_BOUNDED = reprlib.Repr()
"""Text of a value from a file: short, whatever the value. Aliases let a few lines of YAML name billions of items."""
_BOUNDED.maxlevel = 2
_BOUNDED.maxstring = _BOUNDED.maxother = 120


def printable(text: str) -> str:
    """Text on one line that a terminal prints and does not obey, whoever wrote it; spaces stay."""
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def plain(text: str, width: int | None = None) -> str:
    """Foreign text (names, messages and reasons from files) as one printable line, white space collapsed.

    Cut at `width` characters. Every writer begins with it: a terminal, LaTeX, Markdown, HTML and figures.
    """
    line = " ".join(printable(text).split())
    return line if width is None or len(line) <= width else line[: width - 1].rstrip() + "…"


def brief(value: object) -> str:
    """Return the text of a value that somebody gave, short whatever the value."""
    return plain(_BOUNDED.repr(value))


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _nearest(error: Any) -> tuple[str, int]:
    """A minus stays a minus, or a number would change; anything else that cannot be encoded is `?`."""
    return "-" if error.object[error.start] in "\u2212\u2013" else "?", error.start + 1


codecs.register_error("vitinit", _nearest)


class VitinitError(ValueError):
    """Bad input or a state the user can mend. The message is one line: what is wrong, where, what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(plain(message, 4_000))


@contextmanager
def os_errors(said: str) -> Iterator[None]:
    """Turn what the file system refuses into one line: `said`, and its reason."""
    try:
        yield
    except OSError as error:
        raise VitinitError(f"{said}: {error.strerror or error}") from None


def of_files(error: OSError) -> str:
    """One line for what the file system refuses, such as a name that is too long; empty where it names no file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write: {error.strerror}"
    if error.filename is None:
        return ""
    return plain(f"{(error.strerror or str(error)).lower()}: {os.fsdecode(error.filename)}", 400)


def guarded(command: Callable[[], object]) -> int:
    """Run a command; what a user can put right is one line on stderr and exit code 2.

    What the terminal's encoding lacks is printed as `?`, where Python would raise; a minus as `-`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="vitinit")
    try:
        try:
            command()
        finally:
            if sys.stdout:  # None where it is closed, as by `>&-`
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except VitinitError as error:
        line = str(error)
    except OSError as error:
        line = of_files(error)
        if not line and not isinstance(error, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nor can what is left in the buffer be written
        if not line:  # as behind `| head`: nobody reads any more
            return 1
    else:
        return 0
    print(f"error: {line}", file=sys.stderr)
    return 2


class BrokenFile(VitinitError):
    """A file of code, ours or the user's, has an error: that is no fault of who has asked for something else."""


def unknown_name(noun: str, name: str, valid: Iterable[str]) -> VitinitError:
    """The error for a name that is not in `valid`: the nearest valid one, then the list."""
    names = sorted(valid)
    begins = {known[: len(name)]: known for known in reversed(names)}
    match = difflib.get_close_matches
    near = match(name[:200], begins, n=1, cutoff=0.8) or match(name[:200], names, n=1)
    hint = f"; did you mean {begins.get(near[0], near[0])!r}?" if near else ";"
    return VitinitError(f"unknown {noun} {_BOUNDED.repr(name)}{hint} available: {', '.join(names) or 'none'}")


WORDS = {
    "extra_forbidden": "is not a field here",
    "invalid_key": "a field's name must be text",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
}
"""Messages for errors of pydantic, by type."""


def explain(error: ValidationError, where: str, model: type[BaseModel] | None = None) -> VitinitError:
    """One line for a pydantic error: each field, what was given and what is allowed; places in lists count from 1.

    Args:
        error: what pydantic says.
        where: what was read.
        model: what it is to be, where an unknown field is to be answered with those that there are.
    """
    lines = []
    for item in error.errors(include_url=False):
        error_type, loc = item["type"], item["loc"]
        message = WORDS.get(error_type, item["msg"].removeprefix("Value error, "))
        shown = error_type != "missing" and not isinstance(item["input"], dict)
        given = f" (given: {brief(item['input'])})" if shown else ""
        if error_type == "extra_forbidden" and (known := _fields_at(model, loc[:-1])):
            message, given, loc = str(unknown_name("field", str(loc[-1]), known)), "", loc[:-1]
        elif error_type == "invalid_key":
            loc = loc[:-1]
        elif error_type == "union_tag_invalid":
            valid = str(item["ctx"]["expected_tags"]).replace("'", "").split(", ")
            message = str(unknown_name("name", str(item["ctx"]["tag"]), valid))
        places = zip(loc, (*loc, "")[1:], strict=True)
        field = ".".join(str(key + 1 if isinstance(key, int) and after != "[key]" else key) for key, after in places)
        lines.append(f"{field}: {message}{given}" if field else message + given)
    return VitinitError(f"{where}: {'; '.join(lines)}")


def _fields_at(model: type[BaseModel] | None, loc: tuple[int | str, ...]) -> set[str]:
    """Names of the fields at a place in a model; of a discriminated union those of the one that the place names."""
    models = [model] if model else []
    for key in loc:
        inner = [
            nested
            for candidate in models
            if key in candidate.model_fields
            for nested in _models(candidate.model_fields[str(key)].annotation)
        ]
        tagged = [
            candidate for candidate in models if key in (field.default for field in candidate.model_fields.values())
        ]
        models = inner or tagged or models
    return {name for candidate in models for name in candidate.model_fields}


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [inner for argument in get_args(annotation) for inner in _models(argument)]


def cause(error: BaseException) -> str:
    """Return the reason why foreign code cannot be used, with its type."""
    if isinstance(error, ValidationError):
        error = explain(error, error.title)
    return str(error) if isinstance(error, VitinitError) else f"{type(error).__name__}: {error}"


def located(error: BaseException) -> str:
    """Return an error's message, and in brackets the innermost line that is in no library: ours or the user's."""
    standard = sysconfig.get_path("stdlib")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_absolute() and "site-packages" not in file.parts and not file.is_relative_to(standard):
            return f"{error} ({file.name}:{frame.lineno})"
    return str(error)
