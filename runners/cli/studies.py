"""`vitinit studies`: the studies of a results folder. Imports no torch."""

from __future__ import annotations

import time

from rich.filesize import decimal

from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.options import LOCAL, ResultsOption, console, print_table


def studies(results: ResultsOption = LOCAL) -> None:
    """List the studies of a results folder: runs, when the last one ended, size."""
    store, rows, problems = Store(results), [], list[str]()
    for name in store.studies():
        contents, survey = store.read(name), store.survey(name)
        problems += contents.problems
        files = [path.lstat() for path in (results / name).rglob("*") if path.is_file()]
        changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(each.st_mtime for each in files)))
        numbers = len(contents.done), len(contents.failed), survey.unfinished
        rows.append((name, *map(str, numbers), changed, decimal(sum(each.st_size for each in files))))
    if not rows:
        raise VitinitError(f"no records in {results}; run a study first, or name a folder: --results DIR")
    headings = "study", "runs", "failed", "unfinished", "last change", "size"
    print_table(headings, rows, right=("runs", "failed", "unfinished", "size"))
    for problem in problems:
        console.print(problem)
