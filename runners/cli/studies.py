"""`vitinit studies`: the studies of a results folder, and removing one. Imports no torch."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.filesize import decimal
from rich.table import Table

from vitinit.benchmark.fields import is_folder_name
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError, count, os_errors, unknown_name
from vitinit.runners.cli.options import LOCAL, ResultsOption, console
from vitinit.runners.launching import jobs
from vitinit.runners.one_run import claims

studies_app = typer.Typer(help="Studies of a results folder: list them, remove one.", invoke_without_command=True)


@studies_app.callback()
def studies(context: typer.Context, results: ResultsOption = LOCAL) -> None:
    """List the studies of a results folder: runs, when the last one ended, size; `rm NAME` removes one."""
    if context.invoked_subcommand:
        return
    store = Store(results)
    names = store.studies()
    if not names:
        raise VitinitError(f"no records in {results}; run a study first, or name a folder: --results DIR")
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("study", "runs", "failed", "unfinished", "last change", "size"):
        table.add_column(heading, justify="right" if heading not in ("study", "last change") else "left")
    problems: list[str] = []
    for name in names:
        contents, survey = store.outline(name), store.survey(name)
        problems += contents.problems
        size, changed = _size_and_time(results / name)
        numbers = (len(contents.done), len(contents.failed), survey.unfinished)
        table.add_row(name, *(str(each or "") for each in numbers), changed, decimal(size))
    console.print(table)
    for problem in problems:
        console.print(problem)


@studies_app.command()
def rm(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The study.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    results: ResultsOption = LOCAL,
) -> None:
    """Remove a study: records, weights, maps, checkpoints, tables and figures. It asks first."""
    store, folder = Store(results), results / name
    if not is_folder_name(name) or name not in store.folders():
        raise unknown_name("study", name, store.studies())
    _refuse_if_going_on(results, name)
    contents = store.outline(name)
    size, _ = _size_and_time(folder)
    what = f"{folder}: {count(len(contents.done), 'finished run')}, {decimal(size)}"
    if not yes:
        if not sys.stdin.isatty():
            raise VitinitError(f"{what} would be removed for good; say --yes")
        typer.confirm(f"remove {what} for good?", abort=True)
        _refuse_if_going_on(results, name)  # meanwhile
    aside = folder.with_name(f".{name}.removed")  # nobody finds half a study, whatever happens
    with os_errors(f"cannot remove {folder}"):
        if aside.exists():
            shutil.rmtree(aside)
        folder.rename(aside)
        shutil.rmtree(aside)
    console.print(f"removed {what}")


def _refuse_if_going_on(results: Path, name: str) -> None:
    unfinished = claims.folder(results, name, "any").parent
    for folder in sorted(unfinished.iterdir()) if unfinished.is_dir() else ():
        if owner := claims.live(folder):
            raise VitinitError(f"study {name!r}: run {folder.name} is going on ({owner.describe()}); stop it first")
    look = jobs.look(results, name)
    if waiting := [job.job_id for job in look.handed.values() if look.silence or job.job_id in look.states]:
        raise VitinitError(f"study {name!r}: job {waiting[0]} may be waiting on the cluster; cancel it first")


def _size_and_time(folder: Path) -> tuple[int, str]:
    """Bytes of all files, and when the newest of them was changed."""
    found = [path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    newest = max((each.st_mtime for each in found), default=folder.stat().st_mtime)
    return sum(each.st_size for each in found), time.strftime("%Y-%m-%d %H:%M", time.localtime(newest))
