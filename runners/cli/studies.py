"""`vitinit studies`: the studies of a results folder. Imports no torch."""

from __future__ import annotations

import time
from pathlib import Path

from rich import box
from rich.filesize import decimal
from rich.table import Table

from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.options import LOCAL, ResultsOption, console


def studies(results: ResultsOption = LOCAL) -> None:
    """List the studies of a results folder: runs, when the last one ended, size."""
    store = Store(results)
    names = store.studies()
    if not names:
        raise VitinitError(f"no records in {results}; run a study first, or name a folder: --results DIR")
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("study", "runs", "failed", "unfinished", "last change", "size"):
        table.add_column(heading, justify="right" if heading not in ("study", "last change") else "left")
    problems: list[str] = []
    for name in names:
        contents, survey = store.read(name), store.survey(name)
        problems += contents.problems
        size, changed = _size_and_time(results / name)
        numbers = (len(contents.done), len(contents.failed), survey.unfinished)
        table.add_row(name, *(str(each or "") for each in numbers), changed, decimal(size))
    console.print(table)
    for problem in problems:
        console.print(problem)


def _size_and_time(folder: Path) -> tuple[int, str]:
    """Bytes of all files, and when the newest of them was changed."""
    found = [path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    newest = max((each.st_mtime for each in found), default=folder.stat().st_mtime)
    return sum(each.st_size for each in found), time.strftime("%Y-%m-%d %H:%M", time.localtime(newest))
