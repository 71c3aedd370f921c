"""Options of this package's command lines, and errors as one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.initializers.errors import BrokenFile, VitinitError, forgiving_terminal, located, os_errors

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, or that turn the direction of text: no file of ours has one."""


def parser(module: str, description: str, out: str) -> argparse.ArgumentParser:
    """The options that every command of this package takes.

    Args:
        module: What is called with `python -m`.
        description: Its first sentence.
        out: The folder, or the file, that is written by default in the folder of a study.
    """
    forgiving_terminal()  # before any help is printed
    result = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    takes_results(result)
    result.add_argument("--study", metavar="NAME", help="this study only (default: all that are found)")
    result.add_argument(
        "--baseline",
        metavar="ROW",
        help="row to compare with (default: each method's own base, that is the same base and model without a method)",
    )
    where = f"{out} in the study's folder; for studies of results/reference, below results/local/reference"
    result.add_argument("--out", type=Path, metavar="DIR", help=f"folder to write to (default: {where})")
    return result


def takes_results(of: argparse.ArgumentParser) -> None:
    """The option `--results`."""
    of.add_argument(
        "--results",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="folders with records (default: results/local when it holds records, otherwise results/reference)",
    )


def say(lines: Iterable[str]) -> None:
    """Print lines, which may hold text from records."""
    from vitinit.benchmark.terminal import Terminal

    terminal = Terminal()
    for line in lines:
        terminal.print(line, soft_wrap=True)


def folder(path: Path) -> Path:
    """Make an output folder.

    Raises:
        VitinitError: it cannot be made or written.
    """
    with os_errors(f"cannot write to {path}"):
        path.mkdir(parents=True, exist_ok=True)
    return path


def write(path: Path, content: str | bytes) -> None:
    """Write one file, whole or not at all; a link that stands there is replaced, and not followed.

    Raises:
        VitinitError: it cannot be written.
    """
    if isinstance(content, str):
        content = HIDDEN.sub("?", content).encode()
    with os_errors(f"cannot write {path}"):
        write_atomically(path, content)


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Say of an error that nobody meant where it is: in what, and at which line that is no library's.

    Raises:
        BrokenFile: with that line.
    """
    try:
        yield
    except VitinitError:
        raise
    except Exception as error:
        raise BrokenFile(f"{what}: {type(error).__name__}: {located(error)}") from error


def refuse(broken: Sequence[VitinitError]) -> None:
    """Raise what was wrong with some, when all others are done."""
    if broken:
        raise VitinitError("; ".join(dict.fromkeys(map(str, broken))))
