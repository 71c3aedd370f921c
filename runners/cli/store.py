"""`vitinit store`: looking after a folder of records. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError, count, unknown_name
from vitinit.runners.options import LOCAL, console

store_app = typer.Typer(help="Folders of records: check them, export them.", no_args_is_help=True)


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
        contents, (unfinished, leftovers) = store.read(study), store.survey(study)
        with_maps, wrong_maps = check_maps(results, study, contents.done)
        valid = {"done": len(contents.done), "failed": len(contents.failed), "skipped": len(contents.skipped)}
        counts = {**valid, "unfinished": unfinished, "with attention maps": with_maps}
        if any(counts.values()):
            console.print(f"{study}: " + ", ".join(f"{number} {state}" for state, number in counts.items() if number))
        total += sum(valid.values())
        try:
            looks.read(results / study)
            for line in contents.relabel(store.layout(study)):
                console.print(f"{study}: {line}", soft_wrap=True)
        except VitinitError as error:
            wrong.append(str(error))
        wrong += [*contents.problems, *leftovers, *wrong_maps]
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
    from vitinit.benchmark.records.export import export as write

    store = Store(results)
    studies = store.studies()
    if not studies:
        raise VitinitError(f"no records in {results}; run a study first, or name a folder: --results DIR")
    if study is not None and study not in studies:
        raise unknown_name("study", study, studies)
    written, unread = write(store, [study] if study else studies, out)
    for path, rows in written:
        console.print(f"{path}: {count(rows, 'row')}", soft_wrap=True)
    for problem in unread:
        console.print(f"left out: {problem}", soft_wrap=True)
    raise typer.Exit(bool(unread))
