"""Commands of `vitinit` on single records: `show` prints one, `reproduce` carries its run out again."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer
import yaml

from vitinit.benchmark.records.record import FailureRecord, Outcome, RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError, count, plain
from vitinit.runners.options import LOCAL, REFERENCE, DataOption, RunIdArgument, console

REPRODUCED = Path("results/reproduced")
LONG = {
    "history",
    "probes",
    "masked",
    "correct",
    "init",
    "weights",
    "ema_weights",
    "files",
    "sessions",
    "traceback",
    "spec",
}
"""Fields of a record that are not shown; of the spec, what is not at its default is."""
ENVIRONMENT = ("host", "gpu", "processor", "commit", "dirty", "git", "source")

ResultsOption = Annotated[Path, typer.Option(help="Where records are; results/reference is searched after it.")]


def find(prefix: str, results: Path) -> list[tuple[Path, Outcome]]:
    """Return the records of the run whose id begins so, with their files: those in `results` first, later ones first.

    Raises:
        VitinitError: there is none, there are those of several runs, or none is valid.
    """
    roots = list(dict.fromkeys((results, REFERENCE)))
    paths = [path for root in roots if prefix.isalnum() for path in root.glob(f"*/{prefix}*.json")]
    paths = [path for path in paths if re.fullmatch(r"[0-9a-f]{16}(\.failed|\.skipped)?\.json", path.name)]
    run_ids = sorted({path.name[:16] for path in paths})
    if not run_ids:
        searched = " or ".join(map(str, roots))
        raise VitinitError(f"no record of a run {prefix!r} in {searched}; see: vitinit plan GRID")
    if len(run_ids) > 1:
        raise VitinitError(plain(f"{prefix!r} is ambiguous: {', '.join(run_ids)}", 200))
    found: list[tuple[Path, Outcome]] = []
    for folder in dict.fromkeys(path.parent for path in paths):
        store = Store(folder.parent)
        if record := store.outcome(folder.name, run_ids[0]):
            found.append((store.path(folder.name, record.run_id, record.status), record))
    if not found:
        raise VitinitError(f"{paths[0]} is no valid record: vitinit store check")
    found.sort(key=lambda one: one[1].written, reverse=True)
    return sorted(found, key=lambda one: roots.index(one[0].parents[1]))


def find_done(prefix: str, results: Path) -> tuple[Path, RunRecord]:
    """Return the record of a finished run, the newest one, with its file.

    Raises:
        VitinitError: there is none.
    """
    for path, record in (found := find(prefix, results)):
        if isinstance(record, RunRecord):
            return path, record
    raise VitinitError(
        f"run {found[0][1].run_id} is recorded as {found[0][1].status}: it has no numbers and no weights"
    )


def show(run_id: RunIdArgument, results: ResultsOption = LOCAL) -> None:
    """Print one record: what was run, its accuracy, where it ran, and the command that repeats it."""
    (path, record), *others = find(run_id, results)  # several studies may share a run
    content = record.model_dump(mode="json", exclude=LONG)
    lines = [f"also recorded as {other.status}: {its_path}" for its_path, other in others]
    last: list[str] = []
    if isinstance(record, RunRecord):
        epoch, best = record.best
        lines.append(
            f"{record.row}, {record.spec.dataset.label}, seed {record.spec.seed}: {record.last.scored(2)} after the "
            f"last of {count(len(record.history), 'epoch')}; best epoch {epoch} with {best:.2f}%"
        )
        where = "" if path.parents[1] == LOCAL else f" --results {shlex.quote(str(path.parents[1]))}"
        last = [f"repeat it: vitinit reproduce {record.run_id}{where}"]
    elif isinstance(record, FailureRecord):
        last = record.traceback.splitlines()
    lines.append(f"file, with every epoch: {path}")
    environment = content.get("environment", {})
    content["environment"] = {key: environment[key] for key in ENVIRONMENT if environment.get(key) is not None}
    content["spec"] = record.spec.model_dump(mode="json", exclude_defaults=True)
    content["spec"]["model"] = record.spec.model.describe()
    lines += yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110).splitlines()
    for line in lines + last:
        console.print(line, soft_wrap=True)


def reproduce(
    run_id: RunIdArgument,
    results: ResultsOption = LOCAL,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="auto: the device that the run was recorded on.")
    ] = "auto",
    out: Annotated[Path, typer.Option(help="Where the record of the repetition goes.")] = REPRODUCED,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import an initialiser that the record names as package.module:Class.")
    ] = False,
    data_dir: DataOption = None,
) -> None:
    """Repeat a recorded run from its record alone and compare every number. Exit code 0: bitwise equal, 1: not.

    After a stop, the same command resumes. If several studies recorded the run, the newest record is compared.
    """
    path, then = find_done(run_id, results)
    if out.resolve() == path.parents[1].resolve():
        raise VitinitError(f"the record is in {out} itself: choose another folder for the repetition with --out")

    from vitinit.benchmark.datasets.load import data_dir as data_folder
    from vitinit.runners.basics.stop import Stopped
    from vitinit.runners.one_run import reproduce as repetition
    from vitinit.runners.terminal.display import Display

    execution = repetition.execution(then, device)
    console.print(f"repeating {path} on {execution.device}; its record goes to {out / then.study}", soft_wrap=True)
    try:
        now = repetition.repeat(then, execution, out, data_folder(data_dir), Display(console), trust)
    except (Stopped, KeyboardInterrupt) as stopped:
        console.print(f"stopped {stopped}; the same command resumes it")
        raise typer.Exit(130) from None
    if isinstance(now, FailureRecord):
        console.print(plain(f"the repetition failed with {now.error}: {now.message}"), soft_wrap=True)
        raise typer.Exit(1)
    comparison = repetition.compare(then, now)
    for key, (before, after) in comparison.environment.items():
        console.print(plain(f"{key}: {before} then, {after} now", 200), soft_wrap=True)
    console.print(plain(comparison.verdict), soft_wrap=True)
    raise typer.Exit(1 if comparison.different else 0)
