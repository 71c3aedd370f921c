"""`vitinit store`: looking after a folder of records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError, count, os_errors
from vitinit.runners.options import LOCAL, console

store_app = typer.Typer(help="Folders of records: check, export, import them.", no_args_is_help=True)


@store_app.command()
def check(results: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder with records.")] = LOCAL) -> None:
    """Validate every file of every study. Exit code 1 if anything is wrong; nothing is changed."""
    from vitinit.benchmark.records import looks
    from vitinit.benchmark.records.maps import check_maps

    if not results.is_dir():
        raise VitinitError(f"no results folder {results}")
    store, total = Store(results), 0
    wrong = [f"{path}: not read; records belong into the folder of their study" for path in store.strays()]
    for study in store.folders():
        contents, folder = store.read(study), results / study
        unfinished = sum(not (folder / f"{run.name}.json").exists() for run in folder.glob("unfinished/*/"))
        with_maps, wrong_maps = check_maps(results, study, contents.done)
        valid = {"done": len(contents.done), "failed": len(contents.failed), "skipped": len(contents.skipped)}
        counts = {**valid, "unfinished": unfinished, "with attention maps": with_maps}
        if any(counts.values()):
            console.print(f"{study}: " + ", ".join(f"{number} {state}" for state, number in counts.items() if number))
        total += sum(valid.values())
        try:
            looks.read(folder)
            for line in contents.relabel(store.layout(study)):
                console.print(f"{study}: {line}", soft_wrap=True)
        except VitinitError as error:
            wrong.append(str(error))
        wrong += [*contents.problems, *wrong_maps]
    for line in wrong:
        console.print(f"invalid: {line}", soft_wrap=True)
    console.print(f"{count(total, 'valid record')}, {count(len(wrong), 'invalid file')} in {results}", soft_wrap=True)
    raise typer.Exit(bool(wrong))


@store_app.command()
def export(
    results: Annotated[Path, typer.Option(help="Folder with records.")] = LOCAL,
    study: Annotated[str | None, typer.Option(help="This study only. Default: all of them.")] = None,
    out: Annotated[Path, typer.Option(help="Where the tables go.")] = LOCAL / "export",
) -> None:
    """Write one table of runs and one of epochs, as CSV, for other programs. Exit code 1 if any file cannot be read."""
    import pandas as pd

    from vitinit.benchmark.files.atomic import write_atomically
    from vitinit.benchmark.records.export import csv_text, tables

    *found, unread = tables(study, results)
    for name, rows in zip(("runs.csv", "epochs.csv"), found, strict=True):
        text = csv_text(pd.DataFrame(rows, dtype=object), lineterminator="\r\n")
        with os_errors(f"cannot write to {out}"):
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(out / name, text.encode())
        console.print(f"{out / name}: {count(len(rows), 'row')}", soft_wrap=True)
    for problem in unread:
        console.print(f"left out: {problem}", soft_wrap=True)
    raise typer.Exit(bool(unread))


@store_app.command("import")
def take(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with records that were made elsewhere.")],
    results: Annotated[Path, typer.Option(help="Folder that they go to.")] = LOCAL,
) -> None:
    """Take over records of finished runs; maps and weights can be copied. Exit code 1 if any is left.

    Left are files that are no record, runs of code that is no commit of this repository, and those that are here
    already with other numbers.
    """
    from vitinit.benchmark.records.store import Layout
    from vitinit.runners.basics.environment import source_of
    from vitinit.runners.one_run.reproduce import compare

    source, target, left = Store(folder), Store(results), list[str]()
    for study in source.studies():
        contents, here, taken = source.read(study), target.read(study).done, 0
        left += contents.problems
        for run_id, record in contents.done.items():
            if run_id in here:
                if different := compare(here[run_id], record).different:
                    left.append(f"run {run_id} of {study} is here with {count(len(different), 'other value')}")
            elif not (known := source_of(record.environment.get("commit"))) or known != record.environment.get(
                "source"
            ):
                left.append(f"run {run_id} of {study}: its code is no commit of this repository")
            else:
                target.write(record)
                taken += 1
        if target.layout(study) == Layout():
            target.write_layout(study, source.layout(study))
        console.print(f"{study}: {count(taken, 'run')} taken, {len(here.keys() & contents.done)} here already")
    for line in left:
        console.print(f"left: {line}", soft_wrap=True)
    raise typer.Exit(bool(left))
