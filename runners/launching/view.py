"""Runs of a grid as they stand: the state of each, how long they take, both in words; and their live display.

Workers of a cluster are known by `<root>/<study>/jobs/<time>-<six hex digits>/`, a submission: the work, the code, and
the files and logs of its jobs. These are named after study and digits, so that they are found whatever becomes of their
launcher. Imports torch only where a GPU computes.
"""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple, get_args

from rich import progress as bars
from rich.table import Column

from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.datasets.folder import duplicates_in
from vitinit.benchmark.files.reading import read
from vitinit.benchmark.grids.schema import Cell, Grid
from vitinit.benchmark.records.record import FailureRecord, RunRecord
from vitinit.benchmark.records.store import Contents, Store
from vitinit.benchmark.settings import column_names
from vitinit.benchmark.spec import DatasetSpec, RunSpec
from vitinit.benchmark.terminal import Terminal, duration
from vitinit.initializers.errors import VitinitError, count, os_errors, plain, printable
from vitinit.runners.basics.environment import cores, cpu_model, default_device, device_name, gpu_slots
from vitinit.runners.basics.setting import End, Unfinished
from vitinit.runners.one_run import claims
from vitinit.runners.options import console, print_table, say
from vitinit.slurm import jobs as cluster

RUNS = "runs.json"
"""Name of the file with the run_ids of a submission."""


def job_name(submission: Path) -> str:
    """Return the name of a submission's jobs. Job ids begin anew when a cluster is set up anew, names do not."""
    return f"{submission.parents[1].name}-{submission.name[-6:]}"


class Jobs(NamedTuple):
    """Submissions of a study, oldest first by the name of their jobs, and what the cluster says of these now."""

    submissions: dict[str, Path]
    alive: dict[str, cluster.Queued]
    """Jobs that wait or run, by id."""
    silence: str = ""
    """Reason why the cluster gave no answer; empty where it answered."""

    def over(self, owner: claims.Owner) -> bool:
        """Return True if the job of a worker was handed out here and is known to have ended."""
        if self.silence or owner.job_name not in self.submissions:
            return False
        job = self.alive.get(owner.job or "")
        return not job or job.name != owner.job_name

    def runs(self) -> set[str]:
        """Return the runs that jobs which wait or run may carry out.

        Raises:
            VitinitError: the file that says so is damaged.
        """
        run_ids = set()
        for path in {self.submissions[job.name] / RUNS for job in self.alive.values()}:
            try:
                run_ids |= set(json.loads(read(path)))
            except (OSError, ValueError, TypeError, RecursionError):  # others may write there
                raise VitinitError(
                    f"{path} cannot be read: the runs of jobs that wait or run are not known; --add N hands over more"
                ) from None
        return run_ids


def jobs_of(study: Path) -> Jobs:
    """Return the jobs of the study in this folder."""
    submissions = {job_name(path): path for path in sorted(study.glob(f"jobs/*-{'[0-9a-f]' * 6}"))}
    try:
        return Jobs(submissions, cluster.queued(submissions))
    except cluster.SlurmError as error:
        return Jobs(submissions, {}, str(error))


State = Literal["done", "live", "failed", "skip", "to do"]
STATES = get_args(State)


class Planned(NamedTuple):
    """A cell and what is to become of it."""

    cell: Cell
    state: State
    reason: str = ""
    """Worker that carries it out, cause of a skip or failure, or the checkpoint to resume from."""


class View(NamedTuple):
    """The runs of a grid as they stand."""

    grid: Grid
    data_dir: Path
    planned: list[Planned]
    contents: Contents
    owners: dict[str, claims.Owner]
    """Workers that carry runs out, or did until they were stopped, by run_id."""
    jobs: Jobs

    def cells(self, *states: State) -> list[Cell]:
        """Return the runs in one of these states."""
        return [cell for cell, state, _ in self.planned if state in states]


def look(
    grid: Grid, store: Store, data_dir: Path | None, missing: Callable[[DatasetSpec], str | None] | None = None
) -> View:
    """Return what each run of a grid needs; nothing is written.

    A run is `done` when it is recorded, else `live` when a worker is carrying it out right now, else `skip` when its
    initialiser does not fit its model or its dataset is not here, else `failed` when its last attempt failed, else
    `to do`.

    Args:
        grid: the runs.
        store: where records are.
        data_dir: where datasets lie; None: where they do by default.
        missing: why the data of a run that is to be carried out cannot be used; it may fetch them first.

    Raises:
        VitinitError: a file cannot be read that may be a record: its run would seem to be left.
    """
    # Claims before records: a run that ends in between is then found done, never to do.
    study = store.root / grid.name
    try:
        folders = {folder.name: folder for folder in study.glob("unfinished/*")}
    except PermissionError as error:
        raise claims.refused(study, error, "cannot read") from None
    owners = {run_id: owner for run_id, folder in folders.items() if (owner := claims.last(folder))}
    live = {run_id for run_id in owners if claims.live(folders[run_id])}
    jobs = jobs_of(study)
    over = {owner.job for owner in owners.values() if owner.job and jobs.over(owner)}
    contents = store.read(grid.name)
    for problem in contents.unreadable:
        raise VitinitError(f"{problem}. It may be a record: chmod -R a+rX by its owner, or another --results")
    ended = cache(lambda: cluster.ended(over))
    data = datasets.data_dir(data_dir)
    why_not = cache(missing or (lambda spec: datasets.unavailable(spec, data)))

    def planned(cell: Cell) -> Planned:
        run_id = cell.run_id
        folder, owner, failed = folders.get(run_id), owners.get(run_id), contents.failed.get(run_id)
        if run_id in contents.done:
            return Planned(cell, "done")
        if folder and owner and run_id in live and owner.job not in over:
            return Planned(cell, "live", claims.described(folder, owner))
        if reason := cell.misfit or why_not(cell.spec.dataset):
            return Planned(cell, "skip", reason)
        if failed:
            return Planned(cell, "failed", f"{failed.error}: {failed.message}")
        reasons = []
        if owner and owner.job in over:
            end = ended().get(owner.job)
            how = "has gone, and the cluster does not say how"
            if end and end.name == owner.job_name:
                how = f"ended: {end.state}, exit code {end.exit_code}"
            reasons.append(f"job {owner.job} {how}")
        users = claims.checkpoints(folder).values() if folder else ()
        if {os.geteuid(), 0} & {*users}:
            reasons.append("stopped, resumes from its checkpoint")
        elif users:
            reasons.append("stopped, begins anew: its checkpoints are another user's, who alone goes on from them")
        elif folder and (folder.is_symlink() or not folder.is_dir()):
            reasons.append(f"{folder} is no folder of a run: remove it")
        return Planned(cell, "to do", "; ".join(reasons))

    return View(grid, data, [planned(cell) for cell in grid.cells], contents, owners, jobs)


SHOWN = 8
"""Number of lines of a kind that are listed."""
RATES = "name epochs lr min_lr warmup_epochs warmup_lr weight_decay betas eps label_smoothing"
"""Fields of a recipe that do not change the time of an epoch."""


def print_plan(view: View) -> None:
    """The counts, a line for each run, and what needs a sentence; on a terminal a run_id by its first digits.

    A dataset that all runs share is named once.
    """
    digits, heads = 8 if console.room else 16, ["row", "dataset", "seed", "epochs", "state", "run"]
    rows = [
        [*cell.place, str(cell.spec.seed), str(cell.spec.recipe.epochs), state, cell.run_id[:digits]]
        for cell, state, _ in view.planned
    ]
    console.print(view.grid.title)
    console.print(counts(view))
    if len({row[1] for row in rows}) == 1:
        console.print(f"dataset: {rows[0][1]}")
        for texts in (heads, *rows):
            del texts[1]
    print_table(heads, rows, right=("seed", "epochs"))
    for line in (*details(view), *on_folders(view)):
        say(line)


def counts(view: View) -> str:
    """Number of runs, and of those in each state."""
    number = Counter(state for _, state, _ in view.planned)
    states = (f"{number[state]} {state}" for state in STATES if number[state])
    return f"{count(len(view.planned), 'run')}: {', '.join(states)}"


def details(view: View) -> list[str]:
    """Lines on what needs a sentence: who runs what, what failed, what is missing, which file is no record."""
    contents, lines = view.contents, workers(view)
    for listed in ("live", "failed"):
        runs = [
            f"{state} {cell.run_id[:8]}, {cell.describe()}: {reason}"
            for cell, state, reason in view.planned
            if state == listed
        ]
        lines += runs[:SHOWN] + [f"{listed}: and {len(runs) - SHOWN} more"] * (len(runs) > SHOWN)
    outcomes = contents.failed | contents.done
    notes = [note for cell in view.cells("done", "failed") for note in outcomes[cell.run_id].notes or ()]
    to_do = [reason for _, state, reason in view.planned if state == "to do" and reason]
    for state, reasons in (("noted,", notes), ("to do,", to_do)):
        common = Counter(reasons).most_common(SHOWN)
        lines += [f"{state} {count(number, 'run')}: {reason}" for reason, number in common]
    for cell, state, reason in view.planned:
        if state == "skip":
            where = ", ".join(cell.place) if cell.misfit else column_names({"": cell.spec.dataset})[""]
            lines.append(f"skip {where}: {reason}")
    changed = Counter(
        name
        for cell in view.cells("done")
        for name, source in contents.done[cell.run_id].sources.items()
        if source != cell.sources.get(name, source)
    )
    lines += [
        f"{count(number, 'run')} done with other code of {name} than is here: give it another name, or remove the "
        "records"
        for name, number in changed.items()
    ]
    bases = Counter(model for model, _ in {(cell.spec.model.label, cell.spec.base.name) for cell, *_ in view.planned})
    for cell, *_ in view.planned:
        lines += [f"{cell.spec.model.label}: {line}" for line in cell.remarks if bases[cell.spec.model.label] > 1]
    lines = [*dict.fromkeys(lines), *(f"not a record: {problem}" for problem in contents.problems)]
    return [plain(line, 4_000) for line in lines]  # whoever can write there may have written megabytes


def workers(view: View) -> list[str]:
    """Lines on jobs of a cluster: how many wait and run; or, where runs are left without any, where their logs are."""
    jobs = view.jobs
    if jobs.silence and view.cells("to do", "live"):
        return [f"whether jobs wait or run is not known: {jobs.silence}"]
    states = Counter(
        f"{job.state.lower()} {f'on {job.nodes}' if job.nodes else f'({job.reason})'}" for job in jobs.alive.values()
    )
    if not states and jobs.submissions and view.cells("to do"):
        return [f"no job of it is left; logs: {[*jobs.submissions.values()][-1]}"]
    return [f"{count(number, 'job')} {state}" for state, number in states.most_common(SHOWN)]


def on_folders(view: View) -> list[str]:
    """Lines on folders of one's own: files passed over, test images that are trained on, images that have changed.

    Files are read for it: `status` leaves that out.
    """
    lines = []

    @cache
    def checksum(dataset: DatasetSpec, size: int, crops: bool, seed: int) -> str:
        from vitinit.initializers.streams import derive

        return datasets.load(dataset, size, view.data_dir, derive(seed, "train_draw"), crops).checksum

    for spec in dict.fromkeys(cell.spec.dataset for cell in view.grid.cells):
        name, changed = f"{spec.name}:{spec.path}", 0
        with os_errors(f"dataset {name}"):
            now = datasets.get(spec.name).own_files(spec)
            duplicates = duplicates_in(spec) if now and spec.name == "folder" else []
        if unread := now.get("unread"):
            lines.append(f"{name}: not read: {', '.join(f'{number} {ending}' for ending, number in unread.items())}")
        lines += [f"{name}: {line}" for line in duplicates]
        for cell in view.cells("done") if now else ():
            run, recorded = cell.spec, view.contents.done[cell.run_id].dataset
            if run.dataset == spec and recorded.stamp != now["stamp"]:
                seed = run.seed if spec.train_draw == "seed" else 0
                changed += recorded.checksum != checksum(spec, run.model.image_size, run.recipe.crops, seed)
        if changed:
            runs = count(changed, "run")
            lines.append(f"{runs} done with other images than {name} has now: put these back, or remove the records")
    return list(dict.fromkeys(lines))


def run_seconds(cells: Collection[Cell], records: Iterable[RunRecord]) -> dict[str, float]:
    """Return the time of runs by run_id, where one of the records is of the same work: see `estimate`."""
    epoch_seconds = defaultdict[str, list[float]](list)
    for record in records:
        epoch_seconds[_workload(record.spec)].append(record.seconds / record.spec.recipe.epochs)
    measured = ((cell, epoch_seconds.get(_workload(cell.spec))) for cell in cells)
    return {cell.run_id: cell.spec.recipe.epochs * mean(seconds) for cell, seconds in measured if seconds}


def estimate(cells: Collection[Cell], records: Iterable[RunRecord]) -> str:
    """Return in words how long runs take here, or an empty string where records do not tell that of each.

    A record counts where model, dataset and recipe are the same but for `RATES`, and the processor or GPU is the same.
    The run must have had as many threads as `vitinit run` gives it by default.

    Args:
        cells: the runs.
        records: of this study and of others.
    """
    device, model = default_device(), cpu_model()
    threads = 1 if device == "cpu" else max(1, cores() // len(gpu_slots()))
    here = device, threads, device_name(device), model
    measured = run_seconds(cells, (record for record in records if _machine(record) == here))
    if not model or len(measured) < len(cells):
        return ""
    return f"about {duration(sum(measured.values()))}, one run at a time, by records of the same hardware"


def _workload(spec: RunSpec) -> str:
    return repr((spec.dataset, spec.model, spec.recipe.model_dump(exclude=set(RATES.split()))))


def _machine(record: RunRecord) -> tuple[Any, ...]:
    how, where = record.execution, record.environment
    name, model = where.get("gpu") or where.get("processor"), (where.get("cpu") or {}).get("model")
    return how.get("device"), how.get("threads", 0) * how.get("processes", 1), name, model


class Display:
    """A context manager; tell it what a run says, and what ends."""

    def __init__(self, console: Terminal) -> None:
        self.console = console
        whole, rest = Column(no_wrap=True), Column(no_wrap=True, ratio=1)
        done = bars.TextColumn("{task.fields[done]}", markup=False, table_column=whole)
        said = bars.TextColumn("{task.fields[said]}", markup=False, table_column=rest)
        bar, notebook = bars.BarColumn(16, table_column=whole), console.is_jupyter
        self._bar = bars.Progress(done, bar, said, console=console, disable=notebook)
        self._cell_output: Any = None
        """The line of a notebook's output that is updated: rich would need ipywidgets."""
        self._share: dict[str, float] = {}
        """Progress of each run, 0 to 1."""
        self._before: dict[str, float] = {}
        """Progress of each run when it began here: more than 0 where it was resumed."""
        self._failed_trackers: set[str] = set()
        self._ended = 0

    def __enter__(self) -> "Display":
        self._start = time.monotonic()
        self._bar.start()
        if self.console.is_jupyter:
            from IPython.display import display

            self._cell_output = display({"text/plain": ""}, raw=True, display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str, style: str = "") -> None:
        """Print a line, which is not folded: it may hold a command.

        That it cannot be written, as the disk is full or nobody reads, is no reason to end a run.
        """
        with suppress(OSError):
            self.console.print(text, style=style, soft_wrap=True)

    def begin(self, cells: Iterable[Cell]) -> None:
        """Announce all runs."""
        self._cells = {cell.run_id: cell for cell in cells}
        self._all = self._bar.add_task("", total=1.0, done="", said="", visible=bool(cells))
        self._update()

    def event(self, run_id: str, event: claims.Progress | str) -> None:
        """A run says something, or has come so far."""
        if isinstance(event, str):
            topic = event.partition(":")[0]
            if topic not in self._failed_trackers:
                if topic.startswith("tracker "):
                    self._failed_trackers.add(topic)
                self._say_of(run_id, event, "yellow")
        elif event.epoch:
            self._before.setdefault(run_id, (event.epoch - 1) / event.epochs)
            self._share[run_id] = event.epoch / event.epochs
            self._update(f"{self._cells[run_id].describe()}: {event.describe()}")

    def end(self, outcome: End) -> None:
        """A run is recorded, or has ended here without a record."""
        run_id = outcome.run_id
        if isinstance(outcome, FailureRecord):
            self._say_of(run_id, f"failed, {outcome.error}: {outcome.message}", "red")
        elif isinstance(outcome, RunRecord):
            epochs = count(len(outcome.history), "epoch")
            self._say_of(run_id, f"{outcome.last.scored(2)}, {epochs}, {outcome.seconds:.0f} s")
        else:
            self._say_of(run_id, f"stopped, {outcome.reason}")
        if not isinstance(outcome, Unfinished):
            self._share[run_id] = 1.0
            self._ended += 1
        self._update()

    def _say_of(self, run_id: str, text: str, style: str = "") -> None:
        self.say(f"{self._cells[run_id].describe()}: {text}  {run_id[:8]}", style)

    def _update(self, said: str = "") -> None:
        total, done = len(self._cells), sum(self._share.values())
        before = sum(self._before.get(run_id, 0.0) for run_id in self._share)
        text = f"{self._ended}/{total} done"
        if done > before:
            text += f", {duration((time.monotonic() - self._start) * (total - done) / (done - before))} left"
        room = max(0, self.console.width - len(text) - 18)  # beside the bar of 16; rich would cut all columns
        self._bar.update(self._all, completed=done / max(1, total), done=text, said=printable(said)[:room])
        if self._cell_output:
            self._cell_output.update({"text/plain": f"{text}  {printable(said)}"}, raw=True)
