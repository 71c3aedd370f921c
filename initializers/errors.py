"""The one exception for everything a user can put right, and what errors say. Imports no torch."""

from __future__ import annotations

import ast
import codecs
import difflib
import errno
import io
import os
import re
import reprlib
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError


class _Bounded(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Return at most 40 characters, also of a number with more digits than Python converts to text."""
        return super().repr_int(x, level) if abs(x) < 10**400 else f"<int of {x.bit_length():,} bits>"


_BOUNDED = _Bounded()
"""Text of a value from a file: short, whatever the value. Aliases let a few lines of YAML name billions of items."""
_BOUNDED.maxlevel = 2
_BOUNDED.maxstring = _BOUNDED.maxother = 120


def printable(text: str) -> str:
    """Text on one line that a terminal prints and does not obey, whoever wrote it; spaces stay."""
    if text.isprintable():
        return text
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


def refuse_deleted_folder() -> None:
    """Say in one line, and exit, that the working folder is gone: every relative path would fail in its own way."""
    try:
        Path.cwd()
    except OSError as error:
        why = "was deleted" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        print(f"error: the folder that this is started in {why}: cd to another one", file=sys.stderr)
        sys.exit(2)


class BrokenFile(VitinitError):
    """A file of code, ours or the user's, has an error: that is no fault of who has asked for something else."""


class ExitRequested(VitinitError):
    """Code of somebody's asked to end the process, by what is the cause of this."""


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> VitinitError:
    """The error for a name that is not in `valid`: the nearest valid one, then the list."""
    names = sorted(valid)
    begins = {known[: len(name)]: known for known in reversed(names)}
    match = difflib.get_close_matches
    near = match(name[:200], begins, n=1, cutoff=0.8) or match(name[:200], names, n=1)
    hint = f"; did you mean {begins.get(near[0], near[0])!r}?" if near else ";"
    return VitinitError(f"unknown {kind} {_BOUNDED.repr(name)}{hint} available: {', '.join(names) or 'none'}")


def _key(key: int | str) -> str:
    """A key, which may be any text of the user's."""
    short = not isinstance(key, int) and key.strip() and key.isprintable() and len(key) <= 80
    return str(key) if short else brief(key)


def _field(loc: tuple[int | str, ...], numbers: set[tuple[int | str, ...]]) -> str:
    """Write the path of a value with dots; places in lists count from 1, keys of mappings that are `numbers` stay."""
    keys = (key + 1 if isinstance(key, int) and loc[:at] not in numbers else key for at, key in enumerate(loc, 1))
    return ".".join(map(_key, keys))


def explain(error: ValidationError, where: str, model: type[BaseModel] | None = None) -> VitinitError:
    """One line for a pydantic error: each field, what was given and what is allowed.

    Args:
        error: what pydantic says.
        where: what was read.
        model: what it is to be, where an unknown field is to be answered with those that there are.
    """
    parts, items = [], error.errors(include_url=False)
    numbers = {item["loc"][:-1] for item in items if item["loc"][-1:] == ("[key]",)}
    for item in items:
        home = item["loc"][:-1]
        field = _field(item["loc"], numbers)
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden" and (known := _model_at(model, home)):
            unknown = str(unknown_name("field", str(item["loc"][-1]), known.model_fields))
            parts.append(f"{_field(home, numbers)}: {unknown}" if home else unknown)
            continue
        if item["type"] == "invalid_key":
            field, message = _field(home, numbers), f"a field's name must be text, not {_key(item['loc'][-1])}"
        elif item["type"] == "extra_forbidden":
            message = "is not a field here"
        elif item["type"] == "union_tag_invalid":
            valid = str(item["ctx"]["expected_tags"]).replace("'", "").split(", ")
            message = str(unknown_name("name", str(item["ctx"]["tag"]), valid))
        elif item["type"] == "less_than_equal" and item["ctx"]["le"] > 1e6:
            message = f"Input should be less than or equal to {item['ctx']['le']:g}"
        elif item["type"] in ("model_type", "dict_type"):
            known = _model_at(model, item["loc"])
            message = "must be a mapping" + (f" with {', '.join(known.model_fields)}" if known else "")
        elif item["type"] in ("list_type", "tuple_type"):
            message = "must be a list"
        elif item["type"] == "too_short":
            least = item["ctx"]["min_length"]
            message = "is empty, and must not be" if least == 1 else f"must have at least {least}"
        given = (
            ""
            if item["type"] in ("missing", "invalid_key") or isinstance(item["input"], dict)
            else f" (given: {_BOUNDED.repr(item['input'])})"
        )
        parts.append(f"{field}: {message}{given}" if field else message)
    return VitinitError(f"{where}: {'; '.join(parts)}")


def _model_at(model: Any, loc: Sequence[int | str]) -> type[BaseModel] | None:
    """The model that a place in another is to be; None where it is none, or there is no other."""
    at = model
    for key in (*loc, None):
        while get_origin(at) is Annotated:
            at = get_args(at)[0]
        one_of = [one for one in get_args(at) if one is not type(None)] if get_origin(at) in (Union, UnionType) else []
        if len(one_of) == 1:
            at = one_of[0]
        if key is None:
            break
        if one_of[1:]:  # a discriminated union: the key is the name of one
            named = ((one, getattr(one, "model_fields", {}).get("name")) for one in one_of)
            at = next((one for one, name in named if name and name.default == key), None)
        elif isinstance(at, type) and issubclass(at, BaseModel):
            at = at.model_fields[str(key)].annotation if key in at.model_fields else None
        elif get_origin(at) in (dict, list):
            at = get_args(at)[-1]
        else:
            return None
    return at if isinstance(at, type) and issubclass(at, BaseModel) else None


def cause(error: BaseException) -> str:
    """Return the reason why foreign code cannot be imported; pydantic's message on an untyped field is cut short."""
    if isinstance(error, ExitRequested) and error.__cause__:
        error = error.__cause__
    untyped = isinstance(error, PydanticUserError) and error.code == "model-field-missing-annotation"
    if untyped and (found := re.search(r"`(\w+) = (.*?)`", str(error))):
        return f"{found[1]}: needs a type ({found[1]}: {_type_of(found[2])} = {found[2]})"
    return f"{type(error).__name__}: {error}"


def _type_of(text: str) -> str:
    try:
        return type(ast.literal_eval(text)).__name__
    except (SyntaxError, ValueError):
        return "TYPE"


LIBRARIES = (
    *("torch", "torchvision", "numpy", "scipy", "sklearn", "timm", "PIL", "pydantic"),
    *("pandas", "matplotlib", "seaborn", "jinja2"),
)


def located(error: BaseException) -> str:
    """Return an error's message, and in brackets the line of ours or the user's that a reader has to look at.

    That is the innermost outside the standard library and `LIBRARIES`.
    """
    specs = [spec for name in LIBRARIES if (spec := find_spec(name))]
    libraries = [folder for spec in specs for folder in spec.submodule_search_locations or ()]
    standard = sysconfig.get_path("stdlib")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        of_python = file.is_relative_to(standard) and "site-packages" not in file.parts  # which may lie inside it
        if file.is_absolute() and not of_python and not any(map(file.is_relative_to, libraries)):
            return f"{error} ({file.name}:{frame.lineno})"
    return str(error)
