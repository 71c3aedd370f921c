"""Claims, with real processes that are killed, frozen and raced."""

import errno
import multiprocessing
import os
import shutil
import time
from contextlib import suppress

import pytest

from tests.processes import PATIENCE, until
from vitinit.benchmark.records.record import EpochRow
from vitinit.runners.basics.setting import Stop
from vitinit.runners.one_run import claims

FORK = multiprocessing.get_context("fork")


def epoch(number):
    return EpochRow(epoch=number, lr=0.1, train_loss=1.0, test_loss=1.0, test_top1=12.5, seconds=60.0)


def written_by(folder, age, number=1, **fields):
    """Write a claim of another machine, whose last heartbeat is so many seconds old."""
    owner = claims.Owner(**{"host": "far", "machine": "far away", "pid": 7, "token": "another", **fields})
    folder.mkdir(exist_ok=True)
    path = folder / f"claim-{number}.json"
    path.write_text(owner.model_dump_json())
    os.utime(path, (time.time() - age,) * 2)
    return owner


def _hold(folder, held):
    with claims.held(folder, Stop()):
        held.set()
        time.sleep(600)


def test_a_live_claim_is_respected_and_that_of_a_killed_process_is_taken_over_at_once(tmp_path):
    held = FORK.Event()
    holder = FORK.Process(target=_hold, args=(tmp_path, held), daemon=True)
    holder.start()
    assert held.wait(PATIENCE)
    with pytest.raises(claims.Taken, match=f"pid {holder.pid}"), claims.held(tmp_path, Stop()):
        pass
    assert claims.live(tmp_path).pid == holder.pid
    holder.kill()  # not waited for: its pid is still there
    until(lambda: claims.live(tmp_path) is None, "the claim of a zombie")
    for number in (1, 2, 3):
        with claims.held(tmp_path, Stop()) as claim:
            claim.report(epoch(number), 10)
            said = f"pid {os.getpid()}, epoch {number}/10, top-1 12.5%, about {10 - number} min 0 s left"
            assert claims.described(tmp_path, claims.live(tmp_path)).endswith(said)
        assert claims.live(tmp_path) is None
    holder.join()


def test_a_pid_that_another_process_or_none_has_now_is_no_owner(tmp_path):
    with claims.held(tmp_path, Stop()):
        owner = claims.live(tmp_path)
    written_by(tmp_path, 0, number=2, **owner.model_dump() | {"born": owner.born - 1, "token": "of before"})
    assert claims.live(tmp_path) is None
    gone = FORK.Process(target=int)
    gone.start()
    gone.join()
    written_by(tmp_path, 0, number=3, **owner.model_dump() | {"pid": gone.pid, "token": "of before"})
    assert claims.live(tmp_path) is None


@pytest.mark.parametrize(
    ("silent_for", "job", "live"), [(0.5, None, True), (1.5, None, False), (-1.5, None, False), (0.1, "7", False)]
)
def test_of_an_owner_on_another_machine_the_heartbeat_decides(tmp_path, monkeypatch, silent_for, job, live):
    """In a job that was started again on another node, that of its earlier start is over."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    owner = written_by(tmp_path, silent_for * claims.STALE_S, job=job)
    assert claims.live(tmp_path) == (owner if abs(silent_for) < 1 else None), "one of two nodes"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert claims.live(tmp_path) == (owner if live else None)
    if live:
        with pytest.raises(claims.Taken, match="host far pid 7"), claims.held(tmp_path, Stop()):
            pass
    else:
        with claims.held(tmp_path, Stop()):
            assert claims.live(tmp_path).pid == os.getpid()


def test_a_damaged_claim_counts_until_it_is_stale(tmp_path):
    far, job = '{"host": "h", "machine": "m", "pid": 3', ', "job": "/etc"}'
    for number, content in enumerate(["", "[]", '{"host": 3}', '{"pid": "../../etc"}', "\0" * 40, far + job]):
        path = tmp_path / str(number) / "claim-1.json"
        path.parent.mkdir()
        path.write_text(content)
        os.mkfifo(path.parent / claims.PROGRESS)
        assert claims.progress(path.parent) == claims.Progress()
        assert claims.live(path.parent)
        stale = time.time() - 2 * claims.STALE_S
        os.utime(path, (stale, stale))
        with claims.held(path.parent, Stop()):
            assert claims.live(path.parent).pid == os.getpid()


def test_an_owner_that_lost_its_claim_is_asked_to_stop_and_takes_nothing_back(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_S", 0.01)
    stop = Stop()
    with claims.held(tmp_path, stop) as claim:
        before = claim.path.stat().st_mtime_ns
        until(lambda: claim.path.stat().st_mtime_ns != before, "a heartbeat")
        written_by(tmp_path, 0, number=2)
        until(lambda: stop.reason, "that it notices")
    assert "taken the run over" in stop.reason
    assert claims.live(tmp_path).host == "far"


RACES = 300


def _race(root, links, start, winners):
    if not links:

        def refused(*_):
            raise OSError(errno.EPERM, "Operation not permitted")

        os.link = refused
    for race in range(RACES):
        start.wait()
        try:
            with claims.held(root / str(race), Stop()) as claim:
                winners.put((race, claims.live(claim.path.parent).pid == os.getpid()))
                start.wait()  # hold it until all have tried
        except claims.Taken:
            start.wait()


def _run(target, number, *arguments):
    """Call it in so many processes at a time; none may fail."""
    processes = [FORK.Process(target=target, args=arguments, daemon=True) for _ in range(number)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0


@pytest.mark.long
@pytest.mark.parametrize("links", [True, False])
def test_of_many_that_race_for_a_free_or_a_stale_claim_exactly_one_gets_it(tmp_path, links):
    for race in range(1, RACES, 2):
        written_by(tmp_path / str(race), 2 * claims.STALE_S)
    start, winners = FORK.Barrier(4), FORK.Queue()
    _run(_race, 4, tmp_path, links, start, winners)
    won = sorted(winners.get(timeout=PATIENCE) for _ in range(RACES))
    assert won == [(race, True) for race in range(RACES)]
    assert winners.empty()


def _claim_and_finish(folder):
    for _ in range(50):
        with suppress(claims.Taken), claims.held(folder, Stop()) as claim:
            claim.finish()


def test_claiming_while_others_finish_is_never_an_error(tmp_path):
    _run(_claim_and_finish, 4, tmp_path / "run")


def test_a_frozen_owner_notices_that_its_run_was_finished_by_another(tmp_path):
    folder = tmp_path / "run"
    with claims.held(folder, Stop()) as frozen:
        shutil.rmtree(folder)
        assert frozen.lost()
        with claims.held(folder, Stop()) as other:
            assert frozen.lost()
            assert not other.lost()
            frozen.release()
            assert claims.live(folder) is not None
