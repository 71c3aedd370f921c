"""Commands of `vitinit` on single records: `show` prints one, `reproduce` carries its run out again."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
import yaml
from rich.table import Table

from vitinit.benchmark.metrics.registry import metric_label
from vitinit.benchmark.records.record import FailureRecord, Outcome, RunRecord
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.settings import flat
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError, count, plain
from vitinit.runners.basics.environment import ROOT, code, git
from vitinit.runners.basics.machine import MOST_THREADS
from vitinit.runners.options import LOCAL, REFERENCE, DataOption, RunIdArgument, console

if TYPE_CHECKING:
    from vitinit.runners.one_run.reproduce import Reproduction

REPRODUCED = Path("results/reproduced")
SHOWN = 10
"""So many run ids of an ambiguous prefix are listed."""

ResultsOption = Annotated[Path, typer.Option(help="Where records are; results/reference is searched after it.")]


@dataclass(frozen=True)
class FoundRecord:
    """A record on disk."""

    root: Path
    path: Path
    record: Outcome


def show(
    run_id: RunIdArgument,
    results: ResultsOption = LOCAL,
    full: Annotated[bool, typer.Option("--full", help="The whole record: every field, every epoch.")] = False,
) -> None:
    """Print one record: what was run, its accuracy, where it ran, and the command that repeats it."""
    every = find(run_id, results)
    # several studies may share a run
    found = max((one for one in every if one.root == every[0].root), key=lambda one: one.record.written)
    for other in every:
        if other is not found and other.root == found.root:
            _say(f"recorded as {other.record.status}, too, but not as late: {other.path}")
    record = found.record
    content = record.model_dump(mode="json")
    if isinstance(record, RunRecord):
        epoch, best = record.best
        _say(
            f"{record.row}, {record.spec.dataset.label}, seed {record.spec.seed}: {record.last.scored(2)} after the "
            f"last of {count(len(record.history), 'epoch')}; best epoch {epoch} with {best:.2f}%"
        )
        content["init"].pop("offset_maps", None)
    trace = str(content.pop("traceback", ""))
    more = []
    if not full:
        content, more = _summary(found), [f"the whole record, every epoch: vitinit show {record.run_id} --full"]
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
    for line in [*text.splitlines(), *more, *trace.splitlines()]:
        console.print(line, soft_wrap=True)
    if isinstance(record, RunRecord):
        for line in how_to_repeat(found, record):
            _say(line)


def _summary(found: FoundRecord) -> dict[str, Any]:
    """The fields of a record that a reader wants first."""
    record = found.record
    spec, known = record.spec, record.model_dump(mode="json")
    summary: dict[str, Any] = {key: known[key] for key in ("run_id", "status", "study", "row", "written")}
    summary["file"] = str(found.path)
    summary["reason"] = known.get("reason") or f"{known.get('error')}: {known.get('message')}"
    summary["dataset"] = spec.dataset.label
    summary["model"] = spec.model.describe()
    for kind, part in (("base", spec.base), ("method", spec.method)):
        params = flat(json.dumps(part.params)) if part and part.params else {}
        summary[kind] = part and " ".join([part.name, *(f"{key}={value}" for key, value in params.items())])
    recipe = spec.recipe
    of = f"{recipe.optimizer.name}, lr {recipe.lr:g}, {recipe.schedule.name}"
    also = "".join(f", {field} {value}" for field, value in _changed(recipe).items())
    summary["recipe"] = f"{recipe.name}: {recipe.epochs} epochs, batches of {recipe.batch_size}, {of}{also}"
    summary["seed"] = spec.seed
    if isinstance(record, RunRecord):
        del summary["reason"]
        data = record.dataset
        counts = {"training": data.train, "validation": data.val, "test": data.test}
        summary["images"] = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
        summary["training_loss"] = f"{record.history[0].train_loss:.4g} to {record.last.train_loss:.4g}"
        if record.last.ema_score is not None:
            summary["averaged_weights"] = f"{metric_label(record.last.metric)} {record.last.ema_score:.2f}%"
        summary["seconds"] = round(record.seconds, 1)
    ran = known.get("environment", {})
    names = ("host", "gpu", "processor", "commit", "dirty", "source")
    summary |= {name: ran[name] for name in names if ran.get(name) is not None}
    summary["torch"] = ran.get("packages", {}).get("torch")
    summary["device"] = known.get("execution", {}).get("device")
    return {key: value for key, value in summary.items() if value is not None}


def _changed(recipe: Recipe) -> dict[str, str]:
    """Other fields of a recipe that are not at their defaults, as text."""
    plain = Recipe(name=recipe.name, epochs=recipe.epochs, batch_size=recipe.batch_size, lr=recipe.lr)
    default, told = flat(plain.model_dump_json()), ("optimizer.name", "schedule.name")
    its = {field: value for field, value in flat(recipe.model_dump_json()).items() if default.get(field) != value}
    return {field.replace(".params", ""): value for field, value in its.items() if field not in told}


def reproduce(
    run_id: RunIdArgument,
    results: ResultsOption = LOCAL,
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="auto: the device that the run was recorded on.")
    ] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, help="Default: as many as the run was recorded with.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the record of the repetition goes.")] = REPRODUCED,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import an initialiser that the record names as package.module:Class.")
    ] = False,
    data_dir: DataOption = None,
) -> None:
    """Repeat a recorded run from its record alone and compare every number. Exit code 0: bitwise equal, 1: not.

    When it is stopped, the same command goes on with it. Of several studies that recorded it, one from a processor like
    this counts.
    """
    from vitinit.runners.basics.environment import this_cpu_model

    found = find(run_id, results)
    here = this_cpu_model()
    done = [(_cpu(item.record) != here, item) for item in found if isinstance(item.record, RunRecord)]
    first = min(done, key=lambda each: each[0], default=(False, None))[1]
    if first is None:
        record = found[0].record
        raise VitinitError(f"run {record.run_id} is recorded as {record.status}: there are no numbers to compare with")
    then = first.record
    assert isinstance(then, RunRecord)
    if out.resolve() == first.root.resolve():
        raise VitinitError(f"the record is in {out} itself: choose another folder for the repetition with --out")

    from vitinit.benchmark.datasets.load import data_dir as data_folder
    from vitinit.runners.basics.stop import Stopped
    from vitinit.runners.one_run import reproduce as repetition
    from vitinit.runners.terminal.display import Display

    execution = repetition.execution(then, device, threads)
    where = f"{execution.device}, {count(execution.threads, 'thread')}"
    where += ", deterministic" if execution.deterministic else ""
    _say(f"repeating {first.path} on {where}; its record goes to {out / then.study}")
    try:
        now = repetition.repeat(then, execution, out, data_folder(data_dir), Display(console), trust)
    except (Stopped, KeyboardInterrupt) as stopped:
        _say(f"stopped{f' ({stopped})' if str(stopped) else ''}; the same command goes on with it")
        raise typer.Exit(130) from None
    if isinstance(now, FailureRecord):
        _say(f"the repetition failed with {now.error}: {now.message}")
        raise typer.Exit(1)
    comparison = repetition.compare(then, now)
    print_comparison(comparison)
    raise typer.Exit(0 if comparison.equal else 1)


def _cpu(record: RunRecord) -> str | None:
    return (record.environment.get("cpu") or {}).get("model")


def find(prefix: str, results: Path) -> list[FoundRecord]:
    """The records of the run whose id begins so, those in `results` first; the names of the files tell which.

    Raises:
        VitinitError: there is none, there are those of several runs, or none is valid.
    """
    roots = list(dict.fromkeys((results, REFERENCE)))
    paths = [path for root in roots for path in _named(root, prefix)]
    run_ids = sorted({path.name.partition(".")[0] for path in paths})
    if not run_ids:
        searched = " or ".join(map(str, roots))
        raise VitinitError(f"no record of a run {prefix!r} in {searched}; see: vitinit plan GRID")
    if len(run_ids) > 1:
        rest = f" and {len(run_ids) - SHOWN} more" if len(run_ids) > SHOWN else ""
        raise VitinitError(f"{prefix!r} is ambiguous: {', '.join(run_ids[:SHOWN])}{rest}")
    found = []
    for folder in dict.fromkeys(path.parent for path in paths):
        record = Store(folder.parent).outcome(folder.name, run_ids[0])
        if record:
            path = next((path for path in paths if path.parent == folder and _status(path) == record.status), folder)
            found.append(FoundRecord(folder.parent, path, record))
    if not found:
        problems = Store(paths[0].parent.parent).read(paths[0].parent.name).problems
        raise VitinitError(next((text for text in problems if run_ids[0] in text), f"{paths[0]} is no valid record"))
    return found


def how_to_repeat(found: FoundRecord, record: RunRecord) -> list[str]:
    """The command that repeats a run, and what has to be said of it."""
    from vitinit.runners.one_run.reproduce import named_code

    environment, here, named = record.environment, code(), named_code(record)
    words = ["vitinit", "reproduce", record.run_id]
    words += ["--results", str(found.root)] if found.root != LOCAL else []
    words += ["--data-dir", folder] if (folder := _data_dir(environment)) else []
    command = shlex.join([*words, "--trust"] if named else words)
    executed = [f"--trust: it imports, and so executes, {', '.join(named)}."] if named else []
    commit, source = environment.get("commit"), environment.get("source")
    same = source is not None and source == here["source"]
    if same:
        return [f"repeat it: {command}", *executed, "The code that is here is that of the record."]
    if not _hexadecimal(commit):
        lines = [f"repeat it: {command}", "No git commit was recorded: the command takes the code that is here."]
    elif source is None:
        lines = [f"repeat it with the code that is here: {command}"]
        lines += [f"with its own code, which is older than that command: git checkout {commit} && {_as_it_was(record)}"]
    else:
        # The checkout takes a record away that is part of a later commit.
        back = f"git checkout @{{-1}} -- {shlex.quote(str(found.path))} && " if _in_git(found.path) else ""
        lines = [f"repeat it: git checkout {commit} && {back}{command}"]
    lines += executed
    if _hexadecimal(commit) and not _known(commit):
        lines.append("This repository does not have the commit: fetch it first.")
    if environment.get("dirty"):
        lines.append(_on_changes(environment, here))
    if source is not None:
        lines.append("The code that is here is not that of the record.")
    else:
        lines.append("The record does not hold a hash of its code: whether the code here is the same is not known.")
    return lines


def print_comparison(comparison: Reproduction) -> None:
    """A table of what was compared, what differs in the environment, and the verdict."""
    table = Table()
    for heading in ("compared", "values", "result"):
        table.add_column(heading, justify="right" if heading == "values" else "left")
    for line in comparison.lines:
        table.add_row(line.what, str(line.values or ""), line.result)
    console.print(table)
    for key, (then, now) in comparison.environment.items():
        _say(f"{key}: {then} then, {now} now", 200)
    if comparison.unrecorded:
        _say(f"not known of then: {', '.join(comparison.unrecorded)}")
    if comparison.equal:
        _say("bitwise equal in everything that the record holds, times aside")
        return
    why = "; ".join(comparison.causes) or "nothing that is recorded of the environment explains it"
    _say(f"differs; {'this may explain it: ' if comparison.causes else ''}{why}")


def _named(root: Path, prefix: str) -> list[Path]:
    """The files of records whose name begins so."""
    if not re.fullmatch("[0-9a-f]{1,16}", prefix):
        return []
    return sorted(path for path in root.glob(f"*/{prefix}*.json") if _status(path))


def _status(path: Path) -> str | None:
    match = re.fullmatch(r"[0-9a-f]{16}(?:\.(failed|skipped))?\.json", path.name)
    return match and (match.group(1) or "done")


def _hexadecimal(commit: Any) -> bool:
    """Return True for a text of hexadecimal digits, safe within a printed command: records come from other people."""
    return isinstance(commit, str) and re.fullmatch("[0-9a-f]{7,64}", commit) is not None


def _data_dir(environment: dict[str, Any]) -> str:
    """Return the data folder that the command line of a run named, if it is a folder here."""
    argv = environment.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, list) else []
    said = [value for word, value in itertools.pairwise(words) if word == "--data-dir"]
    said += [word.partition("=")[2] for word in words if word.startswith("--data-dir=")]
    # Not Path.is_dir, which raises for names that are too long.
    return next((folder for folder in said if os.path.isdir(folder)), "")  # noqa: PTH112


def _as_it_was(record: RunRecord) -> str:
    argv = record.environment.get("argv")
    words = [str(word) for word in argv[1:]] if isinstance(argv, list) else ["run", record.study]
    return shlex.join(["vitinit", *words, "--only", f"id={record.run_id}"])


def _on_changes(environment: dict[str, Any], here: dict[str, Any]) -> str:
    text = "It was run with changes that are in no commit, so the commit alone does not give the code back"
    diff = environment.get("diff")
    if diff is None:
        return f"{text}."
    if (diff, environment.get("commit")) == (here["diff"], here["commit"]):
        return f"{text}; the same changes are here (diff {str(diff)[:12]})."
    return f"{text}; the changes that are here are others (diff {str(diff)[:12]} then, {str(here['diff'])[:12]} now)."


def _in_git(path: Path) -> bool:
    return _answers(path.parent, "ls-files", "--error-unmatch", "--", path.name)


def _known(commit: Any) -> bool:
    return _answers(ROOT, "cat-file", "-e", f"{commit}^{{commit}}")


def _answers(folder: Path, *arguments: str) -> bool:
    try:
        git(folder, *arguments)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _say(text: str, width: int | None = None) -> None:
    """Print one line that may hold text from a record."""
    console.print(plain(text, width), soft_wrap=True)
