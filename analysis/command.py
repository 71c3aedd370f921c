"""Options that the commands of this package share, and errors as one line."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from vitinit.benchmark.files.atomic import write_with_folder
from vitinit.initializers.errors import BrokenFile, VitinitError, guarded, located, os_errors

ResultsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--results",
        metavar="DIR",
        help="Folder with records; may be repeated. Default: results/local, if empty results/reference.",
    ),
]
StudyOption = Annotated[str | None, typer.Option("--study", metavar="NAME", help="This study alone. Default: all.")]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        metavar="ROW", help="Row to compare with. Default: each method's own base (same base and model, no method)."
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder to write to. Default: the study's; for results/reference, below results/local/reference.",
    ),
]

MetricOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="last or best epoch, or another metric, such as top5 or file.py:NAME (in a folder of its own).",
    ),
]

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, or that turn the direction of text: no file of ours has one."""


def main_of(run: Callable[..., None], name: str) -> Callable[..., int]:
    """Return the command line of one command, which returns the exit code; `python -m` its module carries it out.

    Args:
        run: The command.
        name: `__name__` of its module.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(run)

    def main(arguments: Sequence[str] | None = None) -> int:
        try:
            return guarded(lambda: app(arguments))
        except SystemExit as end:
            return int(end.code or 0)

    if name == "__main__":
        raise SystemExit(main())
    return main


def say(lines: Iterable[str]) -> None:
    """Print lines, which may hold text from records."""
    from vitinit.benchmark.terminal import Terminal

    terminal = Terminal()
    for line in lines:
        terminal.print(line, soft_wrap=True)


def write(path: Path, content: str | bytes) -> None:
    """Write one file, whole or not at all, and make its folder; a link that stands there is replaced, not followed.

    Raises:
        VitinitError: it cannot be written.
    """
    if isinstance(content, str):
        content = HIDDEN.sub("?", content).encode()
    with os_errors(f"cannot write {path}"):
        write_with_folder(path, content)


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Add the location to unexpected errors: what was computed, and the last line that is not a library's.

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
