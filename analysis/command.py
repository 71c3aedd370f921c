"""What the command lines of this package share: options, and errors as one line."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from pathlib import Path

from initializers.errors import VitinitError, forgiving_terminal

ONE_STUDY = "the study to show (default: table2, small, or the first by name; the first that holds finished runs)"


def parser(module: str, description: str, out: Path, study: str = ONE_STUDY) -> argparse.ArgumentParser:
    """The options that every command of this package takes.

    Args:
        module: What is called with `python -m`.
        description: Its first sentence.
        out: The folder, or the one file with its suffix, that is written by default.
        study: Help of the option `--study`.
    """
    result = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    result.add_argument(
        "--results",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="folders with records (default: results/local when it holds records, otherwise results/reference)",
    )
    result.add_argument("--study", metavar="NAME", help=study)
    result.add_argument(
        "--baseline",
        metavar="ROW",
        help="row label that differences are to (default: each method's own base, the same model without a method)",
    )
    kind = "FILE" if out.suffix else "DIR"
    result.add_argument("--out", type=Path, metavar=kind, default=out, help=f"what to write (default: {out})")
    return result


def guarded(command: Callable[[], None]) -> int:
    """Run a command; what a user can put right is one line on stderr and exit code 2."""
    forgiving_terminal()
    collecting = gc.isenabled()
    gc.disable()  # it would look through every record again and again, and a command is over in seconds
    try:
        command()
    except VitinitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        if collecting:
            gc.enable()
    return 0


def folder(path: Path) -> Path:
    """Make an output folder.

    Raises:
        VitinitError: it cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VitinitError(f"cannot write to {path}: {error.strerror or error}") from None
    return path


def write(path: Path, text: str) -> None:
    """Write one file.

    Raises:
        VitinitError: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise VitinitError(f"cannot write {path}: {error.strerror or error}") from None
