"""Launches here: runs tried again, hung, dead or of others. Handing runs to a cluster, as far as it needs none."""

import heapq
import io
import json
import os
import pickle
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from tests.runners import job
from tests.runners.small_run import THREAD, spec
from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.schema import Cell, Grid
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics import environment
from vitinit.runners.basics.setting import Execution, Setting, Stop, Unfinished, failure
from vitinit.runners.launching import cluster
from vitinit.runners.launching.view import RUNS, Display, jobs_of, look
from vitinit.runners.launching.work import Queue, in_order, run_inline, run_locally, work
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.options import LaunchOptions
from vitinit.slurm import submit
from vitinit.slurm.profiles import Profile


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path, "tiny", tmp_path, Execution("cpu", THREAD, "inline"), {})


def test_a_run_that_came_free_is_carried_out(setting):
    cells = [Cell("Kaiming uniform", spec(seed=seed)) for seed in (0, 1)]
    folder = setting.folder(cells[0].run_id)
    claimed(folder, "7")

    class OwnerGoes(Display):
        def end(self, outcome):
            super().end(outcome)
            claims.bury(folder, claims.last(folder))

    out = io.StringIO()
    tally = work(Queue(tuple(cells), setting), run_inline, OwnerGoes(Console(file=out, width=200)))
    assert tally.finished == 2
    assert "2/2 done, 0 s left" in out.getvalue()


@pytest.mark.parametrize(("rows", "seeds"), [(40, 1), (4, 10), (10, 4)])
@pytest.mark.parametrize("known", [True, False])
def test_workers_that_pull_end_together(setting, rows, seeds, known):
    """Forty runs of lengths 1 to 10 on four workers, on a clock of its own: as a multiple of the ideal."""
    dice, ratios = random.Random(0), []
    specs = [spec(seed=seed) for seed in range(seeds)]
    by_row = [[Cell(f"row {row}", each.model_copy(update={"recipe": recipe})) for each in specs]
        for row in range(rows) for recipe in [specs[0].recipe.model_copy(update={"epochs": row + 2})]]  # fmt: skip
    for _ in range(20):
        length = {cell.run_id: took for row in by_row for took in [dice.uniform(1, 10)] for cell in row}
        cells = [cell for row in by_row for cell in row]
        todo = Queue(in_order(cells, length if known else {}), setting, seconds=length)
        queues = [replace(todo, cells=[*todo.cells[number:], *todo.cells[:number]], ended=set()) for number in range(4)]
        free_at = [(0.0, number) for number in range(4)]
        while free_at:
            now, number = heapq.heappop(free_at)
            if cell := queues[number].next():
                for queue in queues:
                    queue.ended.add(cell.run_id)  # as good as claimed
                heapq.heappush(free_at, (now + length[cell.run_id], number))
            last = now
        ratios.append(last / (sum(length.values()) / 4))
    assert len(length) == 40
    assert 1 <= mean(ratios) <= (1.05 if known else 1.10)


def test_a_row_that_cannot_run_is_met_in_the_first_seed_and_long_runs_come_first():
    cells = [Cell(row, spec(seed=seed, recipe=spec().recipe.model_copy(update={"epochs": epochs})))
        for row, epochs in (("short", 1), ("long", 3)) for seed in range(4)]  # fmt: skip
    order = in_order(cells, {cell.run_id: cell.spec.recipe.epochs for cell in cells})
    assert [cell.spec.seed for cell in order] == [0, 0, 1, 1, 2, 3, 2, 3]
    assert " ".join(cell.row for cell in order) == "long short long short long long short short"


def test_a_worker_takes_what_it_can_carry_out_here_and_has_time_for(setting):
    """A run of an hour is left to a fresh job of an hour, one of two hours is begun wherever it is."""
    long, longer, short, absent = (Cell("Kaiming uniform", spec(seed=seed)) for seed in range(4))
    absent = Cell("elsewhere", spec(dataset=DatasetSpec(name="cifar10")))
    seconds = {long.run_id: 3600.0, longer.run_id: 7200.0, short.run_id: 1.0}
    todo = Queue((absent, long, longer, short), setting, seconds=seconds, limit_s=3600.0)
    queue = replace(todo, cells=(longer, long, short, absent))
    assert [queue.next() for _ in range(3)] == [longer, short, None]
    assert queue.declined
    assert not queue.progressed()
    assert queue.stopped() == [longer, short]
    assert list(queue.candidates()) == [longer, long, short]
    assert Queue((long,), setting, seconds=seconds, limit_s=3600.0).next() == long


def test_what_a_resumed_run_had_trained_before_is_no_work_of_this_session(monkeypatch):
    """One of ten epochs is left after the ninth, which took 100 s."""
    recipe = spec().recipe.model_copy(update={"epochs": 10})
    cell, clock = Cell("Kaiming uniform", spec(recipe=recipe)), [50.0]
    monkeypatch.setattr("vitinit.runners.launching.view.time", SimpleNamespace(monotonic=lambda: clock[0]))
    out = io.StringIO()
    with Display(Console(file=out, width=200)) as display:
        display.begin([cell])
        clock[0] += 100
        display.event(cell.run_id, claims.Progress(epoch=9, epochs=10))
        display.end(Unfinished(cell.run_id, "stopped", "a test"))
    assert "0/1 done, 1 min 40 s left" in out.getvalue()


def test_a_link_in_a_study_is_refused(setting, tmp_path):
    for name in ("unfinished", "tracking/tensorboard/1"):
        (tmp_path / "tiny" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tiny" / name).symlink_to(tmp_path)
        with pytest.raises(VitinitError, match=f"tiny/{name} is a link"):
            work(Queue((), setting), run_inline, MagicMock())
        (tmp_path / "tiny" / name).unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(VitinitError, match="pipe is no folder of a run"):
        claims.take(tmp_path / "pipe")


def test_a_notebook_shows_one_line_that_is_updated(monkeypatch):
    notebook, cell = MagicMock(), Cell("Kaiming uniform", spec())
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    console = Console(file=io.StringIO(), force_jupyter=False)
    console.is_jupyter = True
    monkeypatch.setattr(console, "print", print)
    with Display(console) as display:
        display.begin([cell])
        display.event(cell.run_id, claims.Progress(epoch=1, epochs=2))
    lines = [call.args[0]["text/plain"] for call in notebook.display.return_value.update.call_args_list]
    assert lines[0] == "0/1 done  "
    assert lines[1].startswith("0/1 done, 0 s left  Kaiming uniform, ")
    assert lines[1].endswith("epoch 1/2")


HANGS = '''
import os, signal, time
import torch
from typing import ClassVar
from vitinit.initializers.registry import Initializer

class Hangs(Initializer):
    """In the fifth step of training, for ever, and has its launcher told to stop."""
    name: ClassVar[str] = "hangs"
    touches: ClassVar[tuple[str, ...]] = ("*.qkv.weight",)
    launcher: int

    def apply(self, model, generator, progress):
        steps = []

        def step(module, arguments):
            steps.extend([1] * (type(module) is type(model) and module.training))
            if len(steps) == 5:
                os.kill(self.launcher, signal.SIGTERM)
                time.sleep(9999)

        torch.nn.modules.module.register_module_forward_pre_hook(step)
'''


@pytest.mark.long
def test_what_hangs_is_killed_after_its_grace_and_goes_on_from_its_checkpoint(setting, tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text(HANGS)
    monkeypatch.syspath_prepend(tmp_path)
    cell = Cell("hangs", spec(method=InitializerSpec(name="hangs:Hangs", params={"launcher": os.getpid()})))
    out, every_step = io.StringIO(), replace(setting, checkpoint_minutes=0.0)
    first = replace(every_step, execution=Execution("cpu", THREAD, "local"), grace_s=0.1)
    with pytest.raises(KeyboardInterrupt):
        work(Queue((cell,), first), run_locally, Display(Console(file=out, width=200)))
    assert "killed before it had saved; its last checkpoint counts" in out.getvalue()
    assert Store(tmp_path).outcome("tiny", cell.run_id) is None
    record = carry_out(cell, every_step, Stop())
    assert [session.from_step for session in record.sessions] == [0, 4]


class Dies:
    """Its process gets a SIGTERM when it reads this, before anything of ours runs there."""

    def __init__(self, how):
        self.how = how

    def __reduce__(self):
        return _terminated, (self.how,)


def _terminated(how):
    signal.pthread_sigmask(how, [signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "why"),
    [
        (signal.SIG_UNBLOCK, "its process was killed by SIGTERM before it had begun"),
        (signal.SIG_BLOCK, "SIGTERM"),  # as a launch starts its processes: it is heeded once it can be
    ],
)
def test_a_process_that_is_told_to_stop_before_it_begins_is_no_failure(setting, tmp_path, how, why):
    cell, out = Cell("small", spec()), io.StringIO()
    told = replace(setting, code={"": Dies(how)}, execution=Execution("cpu", THREAD, "local"))
    tally = work(Queue((cell,), told), run_locally, Display(Console(file=out, width=200)))
    assert (tally.stopped, len(tally.failures), tally.finished) == (1, 0, 0)
    assert f"stopped, {why}  {cell.run_id[:8]}\n" in out.getvalue()
    assert Store(tmp_path).outcome("tiny", cell.run_id) is None


@pytest.mark.long
def test_a_folder_that_a_run_cannot_write_ends_the_launch_with_its_error(setting):
    cell, where = Cell("small", spec()), replace(setting, execution=Execution("cpu", THREAD, "local"))
    where.folder(cell.run_id).parent.mkdir(parents=True)
    where.folder(cell.run_id).touch()
    with pytest.raises(VitinitError, match=f"unfinished/{cell.run_id} is no folder of a run: remove it"):
        work(Queue((cell,), where), run_locally, MagicMock())


class Unread(Queue):
    """Cannot read a record once two runs have begun."""

    def next(self):
        if len(self.taken) > 1:
            raise VitinitError("a record is more than can be read")
        return super().next()


LOCALLY = [pytest.param(run_locally, kind, marks=pytest.mark.long) for kind in (Queue, Unread)]


@pytest.mark.parametrize(("executor", "kind"), [(run_inline, Queue), *LOCALLY])
def test_what_cannot_be_read_of_one_run_or_for_the_next_one_stops_no_other_run(setting, tmp_path, executor, kind):
    recipe, out = spec().recipe.model_copy(update={"batch_size": 101}), io.StringIO()
    queue = kind([Cell("too few images", spec(recipe=recipe)), Cell("small", spec())], setting, slots=3)
    with pytest.raises(VitinitError, match="is more than"):
        work(queue, executor, Display(Console(file=out, width=200)))
    assert "stopped, batch_size 101 is more than the 100 training images" in out.getvalue()
    assert Store(tmp_path).read("tiny").done.keys() == {spec().run_id}


# Clusters: what is known of jobs, and jobs that are told to stop.


@pytest.fixture(scope="module")
def cells():
    return grid.load("smoke").cells


def hand_out(root, digits, runs=()):
    """Leave what the submission of jobs leaves; they are called study-DIGITS."""
    folder = root / f"study/jobs/20260101-000000-{digits}"
    folder.mkdir(parents=True)
    (folder / RUNS).write_text(json.dumps(runs))
    return folder


def test_workers_are_handed_over_with_a_copy_of_the_code_and_followed_to_their_end(
    vitinit, cells, cluster_says, monkeypatch
):
    """All else that is said of jobs is in `golden/cli/slurm-jobs.txt`."""
    monkeypatch.setattr(cluster, "LOOK_S", 0)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    cluster_says(
        sbatch="echo Submitted batch job 7", scontrol="echo MaxArraySize = 4", squeue="echo >> looks", sacct="true"
    )
    run, root = "run smoke --executor slurm --only row=Mimetic --wait", Path("results/local")
    code, out, err = vitinit(run)
    looks = Path("looks").read_text()
    ((name, logs),) = jobs_of(root / "smoke").submissions.items()
    logs = logs.absolute()
    assert f"handed to SLURM: job 7; logs: {logs}\nsee: vitinit status smoke; vitinit slurm cancel smoke\n" in out, err
    assert "stopped, no job of it is left" in out
    assert (code, looks) == (1, "\n\n")
    (cell,) = (cell for cell in cells if cell.row == "Mimetic")
    _, todo = pickle.loads((logs / submit.CALL).read_bytes())
    assert [each.run_id for each in todo.cells] == [cell.run_id]
    assert (logs / "code/vitinit/runners/launching/cluster.py").exists()
    assert logs.stat().st_mode & 0o77 == 0
    failed = Store("elsewhere").write(failure(cell, replace(setting_of(root), study="smoke"), "OSError", "no disk"))
    pending = f"echo '7|PENDING||{name}|Priority'"
    cluster_says(squeue=f"[ -e asked ] && cp {failed} {root}/smoke; touch asked; {pending}")
    code, out, err = vitinit(run)
    assert "its jobs will carry out what is to do" in out
    assert (code, "failed, OSError: no disk" in out) == (1, True), out + err


def test_only_jobs_that_this_user_submitted_from_this_folder_are_cancelled(
    vitinit, tmp_path, cluster_says, monkeypatch
):
    """A folder that somebody else made, moved or linked may be called after any job of this user's."""
    here, linked = hand_out(tmp_path, "aaaaaa"), tmp_path / "linked/study/jobs"
    (here / "submission.sh").write_text(submit.script(Profile(), 1, here, "study-aaaaaa"))
    linked.parent.mkdir(parents=True)
    linked.symlink_to(here.parent)
    cluster_says(squeue="echo '7_0|RUNNING|node1|study-aaaaaa|None'", scancel=f'echo "$@" >> {tmp_path}/cancelled')
    cancel = "slurm cancel study --results"
    with monkeypatch.context() as another:
        another.setattr(os, "getuid", lambda: -1)
        assert "no job of it is left" in vitinit(cancel, tmp_path)[1]
    assert vitinit(cancel, tmp_path / "linked")[1].endswith(": 7_0\n")
    assert "cancelled 1 job" in vitinit(cancel, tmp_path)[1]
    assert (tmp_path / "cancelled").read_text() == "7_0\n"


def view_of(cells, root):
    return look(Grid("study", "", cells), Store(root), Path("nowhere"))


def states(cells, root):
    return {item.cell.run_id: (item.state, item.reason) for item in view_of(cells, root).planned}


def setting_of(root):
    return Setting(root, "study", root, Execution("cpu", 1, "slurm"), {"source": environment.source_hash()})


def claimed(folder, job_id):
    """Claim a run as a job of another node."""
    folder.mkdir(parents=True)
    owner = claims.Owner(host="node1", machine="another", pid=1, job=job_id, job_name="study-aaaaaa")
    (folder / "claim-1.json").write_text(owner.model_dump_json())


def test_there_are_as_many_jobs_as_runs_and_at_most_those_of_the_profile(cells, tmp_path, cluster_says):
    ids = [cell.run_id for cell in cells[:4]]
    todo, profile = Queue(tuple(cells[:4]), setting_of(tmp_path)), Profile(jobs=3)

    def wanted(**fields):
        return cluster.wanted(replace(todo, **fields), view_of(cells[:4], tmp_path), profile, None)

    assert (wanted(), wanted(slots=3)) == (3, 2)
    submission = hand_out(tmp_path, "aaaaaa", ids)
    cluster_says(squeue="printf '7_0|PENDING||study-aaaaaa|Priority\n7_1|RUNNING|node1|study-aaaaaa|None\n'")
    assert wanted() == 1, "of three there are two"
    assert wanted(cells=tuple(cells[:2])) == 0, "those two will carry them out"
    assert wanted(cells=tuple(cells[4:5])) == 1, "nobody knows of this one"
    cluster_says(squeue="printf '7_%s|PENDING||study-aaaaaa|Priority\n' 0 1 2 3")
    assert (wanted(), wanted(cells=tuple(cells[4:6]))) == (0, 1)
    (submission / RUNS).write_text('["0123')
    with pytest.raises(VitinitError, match="runs.json cannot be read"):
        wanted()
    assert cluster.wanted(todo, view_of(cells, tmp_path), profile, add=5) == 5


def test_a_run_is_not_live_once_its_job_is_over_however_fresh_its_heartbeat(cells, tmp_path, cluster_says, monkeypatch):
    run_id = cells[0].run_id
    claimed(setting_of(tmp_path).folder(run_id), "7_0")
    cluster_says(squeue="true", scontrol="exit 1", sacct="echo '7_0|CANCELLED|0:0|study-aaaaaa'")
    assert states(cells, tmp_path)[run_id][0] == "live", "a job that nobody here handed out"
    hand_out(tmp_path, "aaaaaa", [run_id])
    assert states(cells, tmp_path)[run_id] == ("to do", "job 7_0 ended: CANCELLED, exit code 0:0")
    ended = view_of(cells, tmp_path), Queue((), setting_of(tmp_path)), LaunchOptions(), MagicMock(), Profile()
    with monkeypatch.context() as another_user:
        another_user.setattr(os, "utime", MagicMock(side_effect=PermissionError))
        cluster.hand_out(*ended)
    cluster.hand_out(*ended)
    assert claims.live(setting_of(tmp_path).folder(run_id)) is None, "whoever comes may take it at once"


@pytest.mark.parametrize(
    ("told", "preempted", "requeued", "failures"),
    [("SIGUSR2", False, False, ["OutOfTime"]), ("SIGUSR2", True, True, []), ("SIGTERM", True, True, [])],
)
def test_a_job_that_got_no_step_further_comes_back_where_it_makes_way_else_its_run_has_failed(
    tmp_path, cluster_says, monkeypatch, told, preempted, requeued, failures
):
    time_ = "2026-01-01T00:00:00" if preempted else "None"
    cluster_says(scontrol=f'echo "$@" >> {tmp_path}/asked; echo "JobId=7 JobState=RUNNING PreemptTime={time_} "')
    for name, value in job.JOB.items():
        monkeypatch.setenv(name, value)

    def interrupted(queue, stop):
        assert queue.next()
        raise KeyboardInterrupt(told)

    monkeypatch.setattr(cluster, "_work", interrupted)
    with pytest.raises(SystemExit) as end:
        cluster.work_in_job(job.todo(tmp_path))
    assert end.value.code == (0 if requeued else 1)
    assert ("requeue 7" in (tmp_path / "asked").read_text()) == requeued
    contents = Store(tmp_path).read("smoke")
    assert (contents.done, [failed.error for failed in contents.failed.values()]) == ({}, failures)
