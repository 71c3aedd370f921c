"""Claims, with real processes that are killed, frozen and raced."""

import errno
import multiprocessing
import os
import shutil
import time
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tests.processes import PATIENCE, until
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run import claims

FORK = multiprocessing.get_context("fork")


def _hold(folder: Path, held: Event) -> None:
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
            claim.say(epoch=number, epochs=10, scored="top-1 12.5%", epoch_seconds=60.0)
            said = f"pid {os.getpid()}, epoch {number}/10, top-1 12.5%, about {10 - number} min 0 s left"
            assert claims.live(tmp_path).describe().endswith(said)
        assert claims.live(tmp_path) is None
    holder.join()


@pytest.mark.parametrize(("silent_for", "taken"), [(0.5, True), (1.5, False)])
@pytest.mark.parametrize("where", ["on another machine", "without locks"])
def test_where_no_lock_reaches_the_heartbeat_decides(tmp_path, monkeypatch, where, silent_for, taken):
    with claims.held(tmp_path, Stop()) as claim:
        owner = claim.owner
    if where == "without locks":

        def flock(descriptor: int, how: int) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(claims.fcntl, "flock", flock)
    else:
        owner = owner.model_copy(update={"machine": "far away"})
    claim.path.write_text(owner.model_dump_json())
    beaten = time.time() - silent_for * claims.STALE_S
    os.utime(claim.path, (beaten, beaten))
    assert (claims.live(tmp_path) is not None) == taken
    if taken:
        with pytest.raises(claims.Taken, match=f"pid {os.getpid()}"), claims.held(tmp_path, Stop()):
            pass
    else:
        with claims.held(tmp_path, Stop()) as claim:
            assert claims.live(tmp_path).since == claim.owner.since


def test_a_damaged_claim_counts_until_it_is_stale(tmp_path):
    for number, content in enumerate(["", "[]", '{"host": 3}', '{"pid": "../../etc"}', "\0" * 40]):
        path = tmp_path / str(number) / claims.CLAIM
        path.parent.mkdir()
        path.write_text(content)
        assert claims.live(path.parent) is not None, "its owner may be on another machine"
        os.utime(path, (1, 1))
        with claims.held(path.parent, Stop()):
            assert claims.live(path.parent).pid == os.getpid()


def test_an_owner_that_lost_its_claim_is_asked_to_stop_and_takes_nothing_back(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_S", 0.01)
    stop = Stop()
    with claims.held(tmp_path, stop) as claim:
        before = claim.path.stat().st_mtime_ns
        until(lambda: claim.path.stat().st_mtime_ns != before, "a heartbeat")
        claim.path.write_text(
            claim.owner.model_copy(update={"pid": 1, "host": "far", "machine": "far"}).model_dump_json()
        )
        until(lambda: stop.reason, "that it notices")
    assert "taken the run over" in stop.reason
    assert claims.live(tmp_path).host == "far"


RACES = 20


def _race(root: Path, start, winners) -> None:
    for race in range(RACES):
        start.wait()
        try:
            with claims.held(root / str(race), Stop()) as claim:
                winners.put((race, claims.live(claim.path.parent).pid == os.getpid()))
                start.wait()  # hold it until all have tried
        except claims.Taken:
            start.wait()


def _run(target, number: int, *arguments: object) -> None:
    """Call it in so many processes at a time; none may fail."""
    processes = [FORK.Process(target=target, args=arguments, daemon=True) for _ in range(number)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0


@pytest.mark.long
def test_of_many_that_race_for_a_stale_claim_exactly_one_gets_it(tmp_path):
    for race in range(1, RACES, 2):
        stale = tmp_path / str(race) / claims.CLAIM
        stale.parent.mkdir()
        stale.write_text("{}")
        os.utime(stale, (1, 1))
    start, winners = FORK.Barrier(8), FORK.Queue()
    _run(_race, 8, tmp_path, start, winners)
    won = sorted(winners.get(timeout=PATIENCE) for _ in range(RACES))
    assert won == [(race, True) for race in range(RACES)]
    assert winners.empty()


def _claim_and_finish(folder: Path) -> None:
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
            frozen.say(epoch=3, epochs=4, scored="top-1 50.0%", epoch_seconds=60.0)
            frozen.release()
            assert claims.live(folder).since == other.owner.since
            assert claims.live(folder).epoch == 0
