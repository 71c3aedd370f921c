"""Launchers that are told to stop, killed, started twice at once, and told to begin anew."""

import os
import signal
import time

import pytest
from rich.console import Console

from tests.faults.harness import ALL, ROWS, assert_same, cells, setting, thorough
from tests.held import HELD, HOLD
from tests.processes import FORKS, NEEDS_PROC, PATIENCE, alive, call, children, grandchildren, start, until
from vitinit.benchmark.records.store import Store
from vitinit.runners.launching.view import Display
from vitinit.runners.launching.work import Queue, run_inline, work
from vitinit.runners.one_run import claims
from vitinit.runners.training import checkpoint

pytestmark = [pytest.mark.long, NEEDS_PROC]

SIGNALS = [
    (executor, number, to)
    for executor, recipients in (("inline", ["launcher"]), ("local", ["launcher", "group", "run"]))
    for to in recipients
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP)
]
QUICK = [("local", signal.SIGTERM, "launcher")]
ALL_RUNS = "run faults.yaml --device cpu --executor"
RUN = "run faults.yaml --device cpu --only row=dropout --only precision=fp32 --workers 1 --keep-weights --executor"


def study(folder):
    """Runs of three epochs, which wait after the first where `begun` starts them."""
    return cells(folder, 3, {row: fields | {"base": HELD} for row, fields in ROWS.items()})


def begun(folder, line):
    """A launch whose runs do not end by themselves while there is the file `hold` in the folder."""
    (folder / "hold").touch()
    return start(line, folder, **{HOLD: str(folder / "hold")})


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory):
    """Results of the run that nobody disturbs, by executor."""
    made = {}

    def results(executor):
        if executor not in made:
            folder = tmp_path_factory.mktemp(executor)
            study(folder)
            done = call(f"{RUN} {executor}", folder)
            assert done.returncode == 0, done.stderr
            made[executor] = folder / "results/local"
        return made[executor]

    return results


def until_an_epoch_is_done(folder, process):
    """Wait for the first epoch of a launch; the folder of the run in progress."""
    found = []

    def one_is_done():
        for run in (folder / "results/local/faults/unfinished").glob("*"):
            owner = claims.live(run)
            found.extend([run] if owner and claims.progress(run).epoch else [])
        return bool(found)

    until(one_is_done, "the first epoch", process)
    return found[0]


def until_gone(pids):
    """Wait for these processes to end."""
    until(lambda: not any(map(alive, pids)), "processes that should end")


@pytest.mark.parametrize(("executor", "number", "to"), SIGNALS if ALL else QUICK)
def test_a_signal_saves_and_stops(tmp_path, left_alone, executor, number, to, vitinit, tally):
    study(tmp_path)
    process = begun(tmp_path, f"{RUN} {executor}")
    run = until_an_epoch_is_done(tmp_path, process)
    offspring = children(process.pid)
    if to == "group":
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid if to == "launcher" else grandchildren(process.pid)[0], number)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == (1 if to == "run" else 130), out + err
    assert "same command resumes" in " ".join(out.split())
    assert ": stopped, SIG" in " ".join(out.split())
    assert err == ""
    until_gone(offspring)
    (saved,) = run.glob("step-*.ckpt")
    assert checkpoint.unpack(saved.read_bytes())["run_id"] == run.name
    assert claims.live(run) is None
    contents = Store(tmp_path / "results/local").read("faults")
    assert (contents.failed, contents.problems) == ({}, [])
    tally("signals", tried=1, survived=1)
    if not ALL or number != signal.SIGTERM:  # what it has saved does not depend on the signal
        return
    code, out, _ = vitinit(RUN, executor)
    assert code == 0, out
    assert "goes on from epoch" in out
    (cell,) = (cell for cell in study(tmp_path) if cell.spec.run_id == run.name)
    assert_same(setting(left_alone(executor)), setting(tmp_path / "results/local"), cell)
    record = Store(tmp_path / "results/local").read("faults").done[run.name]
    assert [session.from_step == 0 for session in record.sessions] == [True, False]


@thorough
@pytest.mark.parametrize("after", [4, 6, 7, 8, 9, 10, 12])
def test_a_signal_to_the_group_in_the_first_seconds_leaves_no_failure(tmp_path, after, tally):
    """While it imports, while the fork server does, while the first runs start."""
    study(tmp_path)
    process = begun(tmp_path, f"{ALL_RUNS} local --workers 4")
    time.sleep(after)
    offspring = children(process.pid)
    os.killpg(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode in (130, -signal.SIGTERM), err
    assert "Traceback" not in err
    until_gone(offspring)
    contents = Store(tmp_path / "results/local").read("faults")
    assert (contents.failed, contents.problems) == ({}, [])
    tally("signals in the first seconds", tried=1, survived=1)


@thorough
def test_the_runs_of_a_killed_launcher_save_and_end(tmp_path, left_alone, vitinit, tally):
    """SIGKILL cannot be handled: the run notices that its launcher has gone."""
    study(tmp_path)
    process = begun(tmp_path, f"{RUN} local")
    run = until_an_epoch_is_done(tmp_path, process)
    (worker,) = grandchildren(process.pid)
    process.kill()
    process.communicate()
    until_gone([worker])
    assert len(list(run.glob("step-*.ckpt"))) == 1
    assert vitinit(f"{RUN} local")[0] == 0
    (cell,) = (cell for cell in study(tmp_path) if cell.spec.run_id == run.name)
    assert_same(setting(left_alone("local")), setting(tmp_path / "results/local"), cell)
    tally("launchers killed", tried=1, survived=1)


@thorough
def test_a_killed_run_is_a_failure_until_it_is_retried_and_then_goes_on(tmp_path, left_alone, vitinit, tally):
    study(tmp_path)
    process = begun(tmp_path, f"{RUN} local --checkpoint-minutes 0")
    run = until_an_epoch_is_done(tmp_path, process)
    os.kill(grandchildren(process.pid)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (1, ""), out
    (failed,) = Store(tmp_path / "results/local").read("faults").failed.values()
    assert (failed.error, "SIGKILL" in failed.message) == ("ProcessDied", True)

    code, out, _ = vitinit(f"{ALL_RUNS} local --only id={run.name}")
    assert code == 1
    assert "nothing to do: 1 run: 1 failed" in out
    assert "failed before; --retry-failed runs" in out
    code, out, _ = vitinit(f"{RUN} local --checkpoint-minutes 0 --only id={run.name} --retry-failed")
    assert code == 0
    assert "goes on from epoch" in out
    contents = Store(tmp_path / "results/local").read("faults")
    assert contents.failed == {}
    alone = Store(left_alone("local")).read("faults").done[run.name]
    assert contents.done[run.name].weights == alone.weights
    tally("SIGKILL, under a launcher", tried=1, survived=1)


def _race(folder, number, start, finished):
    runs = cells(folder, epochs=1)[:4]
    display = Display(Console(file=(folder / f"out{number}").open("w")))
    start.wait()
    finished.put(work(Queue(tuple(runs), setting(folder / "results")), run_inline, display).finished)


def race(folder, launchers):
    """Launch one study several times at once; how many runs were carried out in all."""
    folder.mkdir()
    cells(folder, epochs=1)
    start, finished = FORKS.Barrier(launchers), FORKS.Queue()
    processes = [FORKS.Process(target=_race, args=(folder, n, start, finished)) for n in range(launchers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
    return sum(finished.get(timeout=PATIENCE) for _ in processes)


def test_launched_several_times_at_once_every_run_is_carried_out_once(tmp_path, tally):
    races = 9 if ALL else 1
    for number in range(races):
        carried_out = race(tmp_path / str(number), launchers=2 + (number + 1) % 3)
        assert carried_out == 4
        contents = Store(tmp_path / str(number) / "results").read("faults")
        assert (len(contents.done), contents.failed, contents.problems) == (4, {}, [])
        assert not list((tmp_path / str(number) / "results/faults/unfinished").glob("*"))
    tally("launch races", tried=races, survived=races)
