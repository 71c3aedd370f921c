"""Commands of `vitinit` on single records: `show` prints one, `reproduce` carries its run out again."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import ValidationError

from vitinit.benchmark.records.record import FailureRecord, Outcome, RunRecord
from vitinit.benchmark.records.store import LOCAL, REFERENCE, STATUSES, Layout, Store, at_seed_0, check_maps
from vitinit.benchmark.settings import column_names
from vitinit.initializers.errors import VitinitError, count, explain, os_errors, plain
from vitinit.runners.options import DataOption, DeviceName, RunIdArgument, console, results_option, say

REPRODUCED = Path("results/reproduced")
LONG = "history probes masked correct init weights ema_weights files sessions traceback spec"
"""Fields of a record that are not shown; of the spec, what is not at its default is."""
ENVIRONMENT = "host job gpu processor commit dirty git source"

ResultsOption = Annotated[Path, typer.Option(help="Where records are; results/reference is searched after it.")]


def find(prefix: str, results: Path) -> list[tuple[Path, Outcome]]:
    """Return the records of the run whose id begins so, with their files: those in `results` first, later ones first.

    Raises:
        VitinitError: there is none, there are those of several runs, or none is valid.
    """
    roots = dict.fromkeys((results, REFERENCE))
    paths = [path for root in roots if prefix.isalnum() for path in root.glob(f"*/{prefix}*.json")]
    run_ids = sorted({path.name[:16] for path in paths if re.match(r"[0-9a-f]{16}\.", path.name)})
    if not run_ids:
        searched = " or ".join(map(str, roots))
        raise VitinitError(f"no record of a run {prefix!r} in {searched}; see: vitinit plan GRID")
    if len(run_ids) > 1:
        raise VitinitError(plain(f"{prefix!r} is ambiguous: {', '.join(run_ids)}", 200))
    records = []
    for store in map(Store, roots):
        outcomes = [outcome for study in store.folders() if (outcome := store.outcome(study, run_ids[0]))]
        outcomes.sort(key=lambda outcome: outcome.written, reverse=True)
        records += [(store.path(record.study, record.run_id, record.status), record) for record in outcomes]
    if not records:
        raise VitinitError(f"{paths[0]} is no valid record: vitinit store check")
    return records


def find_done(prefix: str, results: Path) -> tuple[Path, RunRecord]:
    """Return the record of a finished run, the newest one, with its file.

    Raises:
        VitinitError: there is none.
    """
    for path, record in find(prefix, results):
        if isinstance(record, RunRecord):
            return path, record
    raise VitinitError(f"run {record.run_id} is recorded as {record.status}: it has no numbers and no weights")


def foreign(record: Outcome) -> list[str]:
    """Return code and data elsewhere that a record names: nothing of it is executed, fetched or read unasked.

    Raises:
        VitinitError: an initialiser's parameters are none.
    """
    spec = record.spec
    try:
        names = [name for initializer in (spec.base, spec.method) if initializer for name in initializer.names()]
    except ValidationError as error:
        raise explain(error, f"run {record.run_id}") from None
    names += [
        spec.recipe.optimizer.name,
        *(augmentation.name for augmentation in spec.recipe.augment),
        getattr(spec.model, "python", ""),
        spec.dataset.name,
        f"{spec.dataset.name}:{spec.dataset.path or ''}",
    ]
    return [name for name in names if ":" in name.removesuffix(":")]


def check_trusted(record: RunRecord, trust: bool, how: str = "--yes") -> None:
    """Refuse a record that names code or data elsewhere, unless it is trusted.

    Raises:
        VitinitError: it is not.
    """
    if not trust and (named := foreign(record)):
        raise VitinitError(
            f"run {record.run_id} needs {', '.join(named)}, which would be executed, fetched or read; "
            f"say {how} if you trust the record"
        )


def show(run_id: RunIdArgument, results: ResultsOption = LOCAL) -> None:
    """Print one record: what was run, its accuracy, where it ran, and the command that repeats it."""
    (path, record), *others = find(run_id, results)  # several studies may share a run
    runs = Store(path.parents[1]).layout(record.study).runs
    record = record.model_copy(update={"row": runs.get(at_seed_0(record.spec), record.row)})
    content = record.model_dump(mode="json", exclude=set(LONG.split()))
    lines = [f"also recorded as {other.status}: {other_path}" for other_path, other in others]
    last: list[str] = []
    if isinstance(record, RunRecord):
        (epoch, best), dataset = record.best, column_names({"": record.spec.dataset})[""]
        lines.append(
            f"{record.row}, {dataset}, seed {record.spec.seed}: {record.last.scored(2)} after the "
            f"last of {count(len(record.history), 'epoch')}; best epoch {epoch} with {best:.2f}%"
        )
        last = [
            f"repeat it: vitinit reproduce {record.run_id}{results_option(path.parents[1])}"
            f"{' --yes' if foreign(record) else ''}"
        ]
    elif isinstance(record, FailureRecord):
        last = record.traceback.splitlines()
    lines.append(f"whole record: {path}")
    environment = content.get("environment", {})
    content["environment"] = {key: environment[key] for key in ENVIRONMENT.split() if environment.get(key) is not None}
    content["spec"] = record.spec.model_dump(mode="json", exclude_defaults=True)
    content["spec"]["model"] = record.spec.model.describe()
    lines += yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110).splitlines()
    for line in lines + last:
        say(line)


def reproduce(
    run_id: RunIdArgument,
    results: ResultsOption = LOCAL,
    device: Annotated[DeviceName, typer.Option(help="auto: the device that the run was recorded on.")] = "auto",
    out: Annotated[Path, typer.Option(help="Where the record of the repetition goes.")] = REPRODUCED,
    yes: Annotated[
        bool, typer.Option("--yes", help="Use code, and data elsewhere, that the record names, and do not ask.")
    ] = False,
    data_dir: DataOption = None,
) -> None:
    """Repeat a recorded run from its record alone and compare every number. Exit code 0: bitwise equal, 1: not.

    After a stop, the same command resumes. If several studies recorded the run, the newest record is compared.
    """
    path, then = find_done(run_id, results)
    if out.resolve() == path.parents[1].resolve():
        raise VitinitError(f"the record is in {out} itself: choose another folder for the repetition with --out")

    from vitinit.benchmark.datasets.registry import data_dir as data_folder
    from vitinit.runners.launching.view import Display
    from vitinit.runners.one_run import reproduce as repetition

    if not yes and sys.stdin.isatty() and (names := foreign(then)):
        yes = typer.confirm(f"run {then.run_id} executes, fetches or reads {', '.join(map(plain, names))}. Go on?")
    check_trusted(then, yes)
    execution = repetition.execution(then, device)
    say(f"repeating {path} on {execution.device}; its record goes to {out / then.study}")
    try:
        now = repetition.repeat(then, execution, out, data_folder(data_dir), Display(console))
    except KeyboardInterrupt as stopped:
        console.print(f"stopped {stopped}; the same command resumes it")
        raise
    if isinstance(now, FailureRecord):
        say(plain(f"the repetition failed with {now.error}: {now.message}"))
        raise typer.Exit(1)
    comparison = repetition.compare(then, now)
    for key, (before, after) in comparison.environment.items():
        say(plain(f"{key}: {before} then, {after} now", 200))
    say(plain(comparison.verdict))
    raise typer.Exit(1 if comparison.different else 0)


store_app = typer.Typer(help="Folders of records: check, export, import them.", no_args_is_help=True)


@store_app.command()
def check(results: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder with records.")] = LOCAL) -> None:
    """Validate every file of every study. Exit code 1 if anything is wrong; nothing is changed."""
    from vitinit.benchmark.records import looks

    if not results.is_dir():
        raise VitinitError(f"no results folder {results}")
    store, total = Store(results), 0
    wrong = [f"{path}: not read; records belong into the folder of their study" for path in store.strays()]
    for study in store.folders():
        contents, folder = store.read(study), results / study
        unfinished = sum(not (folder / f"{run.name}.json").exists() for run in folder.glob("unfinished/*/"))
        with_maps, wrong_maps = check_maps(results, study, contents.done)
        valid: dict[str, int] = {status: len(getattr(contents, status)) for status in STATUSES}
        counts = {**valid, "unfinished": unfinished, "with attention maps": with_maps}
        if any(counts.values()):
            console.print(f"{study}: " + ", ".join(f"{number} {state}" for state, number in counts.items() if number))
        total += sum(valid.values())
        try:
            looks.read(folder)
            store.layout(study)
        except VitinitError as error:
            wrong.append(str(error))
        wrong += [*contents.problems, *wrong_maps]
    for line in wrong:
        say(f"invalid: {line}")
    say(f"{count(total, 'valid record')}, {count(len(wrong), 'invalid file')} in {results}")
    raise typer.Exit(bool(wrong))


@store_app.command()
def export(
    results: Annotated[Path, typer.Option(help="Folder with records.")] = LOCAL,
    study: Annotated[str | None, typer.Option(help="This study only. Default: all of them.")] = None,
    out: Annotated[Path, typer.Option(help="Where the tables go.")] = LOCAL / "export",
) -> None:
    """Write one table of runs and one of epochs, as CSV, for other programs. Exit code 1 if any file cannot be read."""
    import pandas as pd

    from vitinit.benchmark.files.atomic import write_with_folder
    from vitinit.benchmark.records.export import csv_text, tables

    if out == LOCAL / "export" and out.is_symlink():
        raise VitinitError(f"{out} is a link: remove it, or write elsewhere with --out")
    runs, epochs, unread = tables(study, results)
    for name, rows in (("runs.csv", runs), ("epochs.csv", epochs)):
        text = csv_text(pd.DataFrame(rows, dtype=object), lineterminator="\r\n")
        with os_errors(f"cannot write to {out}"):
            write_with_folder(out / name, text.encode())
        say(f"{out / name}: {count(len(rows), 'row')}")
    for problem in unread:
        say(f"left out: {problem}")
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
    from vitinit.runners.basics.environment import source_of
    from vitinit.runners.launching.work import check_writable
    from vitinit.runners.one_run.reproduce import compare

    if not folder.is_dir():
        raise VitinitError(f"no results folder {folder}")
    source, target, left = Store(folder), Store(results), list[str]()
    for study in source.studies():
        check_writable(results / study)
        contents, here, taken, by_word = source.read(study), target.read(study).done, 0, 0
        left += contents.problems
        for run_id, record in contents.done.items():
            environment = record.environment
            if run_id in here:
                if different := compare(here[run_id], record).different:
                    left.append(f"run {run_id} of {study} is here with {count(len(different), 'other value')}")
            elif not (known := source_of(environment.get("commit"))) or (
                # what the hash is over has changed since: of a clean tree the commit tells
                environment.get("dirty", True) and known != environment.get("source")
            ):
                left.append(f"run {run_id} of {study}: its code is no commit of this repository")
            else:
                target.write(record)
                taken += 1
                if known != environment.get("source"):
                    by_word += 1
        if target.layout(study) == Layout():
            target.write_layout(study, source.layout(study))
        console.print(f"{study}: {count(taken, 'run')} taken, {len(here.keys() & contents.done)} here already")
        if by_word:
            console.print(f"{study}: {count(by_word, 'run')} with another hash of the code than the commit has")
    for line in left:
        say(f"left: {line}")
    raise typer.Exit(bool(left))
