"""Claims, with real processes that are killed, frozen and raced."""

import errno
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import PATIENCE, until
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.stop import Stop
from vitinit.runners.one_run import claims

HOLD = """
import sys, time
from pathlib import Path
from vitinit.runners.one_run import claims
from vitinit.runners.basics.stop import Stop
with claims.held(Path(sys.argv[1]), Stop()):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds a claim on tmp_path / 'run'."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_live_claim_is_respected_and_that_of_a_killed_process_is_taken_over_at_once(tmp_path, holder):
    with pytest.raises(claims.Taken, match=f"pid {holder.pid}"), claims.held(tmp_path / "run", Stop()):
        pass
    assert claims.live(tmp_path / "run").pid == holder.pid
    holder.kill()  # not waited for: its pid is still there
    until(lambda: claims.live(tmp_path / "run") is None, "the claim of a zombie")
    holder.wait()
    assert claims.live(tmp_path / "run") is None
    with claims.held(tmp_path / "run", Stop()) as claim:
        assert claim.path.name == "claim-0002.json"


def test_another_process_with_the_same_pid_is_not_the_owner(tmp_path):
    with claims.held(tmp_path, Stop()) as claim:
        mine = claim.owner
    claim.path.write_text(mine.model_copy(update={"process_started": "1"}).model_dump_json())
    assert claims.live(tmp_path) is None


def test_a_released_claim_can_be_taken_by_the_same_process(tmp_path):
    for number in (1, 2, 3):
        with claims.held(tmp_path, Stop()) as claim:
            claim.update(number, 10, "top-1 12.5%", 60.0)
            assert (
                claims.live(tmp_path)
                .describe()
                .endswith(f"pid {os.getpid()}, epoch {number}/10, top-1 12.5%, about {10 - number} min 0 s left")
            )
        assert claims.live(tmp_path) is None
    assert claim.path.name == "claim-0003.json"


def test_a_finished_run_leaves_no_folder(tmp_path):
    with claims.held(tmp_path / "run", Stop()) as claim:
        (tmp_path / "run" / "step-00000001.ckpt").touch()
        claim.finish()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("silent_for", "taken"), [(0.5, True), (1.5, False)])
def test_on_another_machine_the_heartbeat_decides(tmp_path, silent_for, taken):
    other = {"host": "far", "machine": "far away", "pid": os.getpid(), "process_started": "7", "since": 0.0}
    path = tmp_path / "claim-0001.json"
    path.write_text(json.dumps(other))
    beaten = time.time() - silent_for * claims.STALE_S
    os.utime(path, (beaten, beaten))
    assert (claims.live(tmp_path) is not None) == taken
    if taken:
        with pytest.raises(claims.Taken, match="host far"), claims.held(tmp_path, Stop()):
            pass
    else:
        with claims.held(tmp_path, Stop()) as claim:
            assert claim.path.name == "claim-0002.json"


def test_a_damaged_claim_counts_until_it_is_stale(tmp_path):
    for number, content in enumerate(["", "[]", '{"host": 3}', '{"pid": "../../etc"}', "\x00" * 40]):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "claim-0001.json"
        path.write_text(content)
        assert claims.live(folder) is not None, "it may be being written right now"
        os.utime(path, (1, 1))
        with claims.held(folder, Stop()) as claim:
            assert claims.live(folder).pid == os.getpid()
        assert claim.path.name == "claim-0002.json"
        assert path.read_text() == content


def test_an_owner_that_lost_its_claim_is_asked_to_stop_and_takes_nothing_back(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_S", 0.01)
    stop = Stop()
    with claims.held(tmp_path, stop) as claim:
        before = claim.path.stat().st_mtime_ns
        until(lambda: claim.path.stat().st_mtime_ns != before, "a heartbeat")
        later = tmp_path / "claim-0002.json"
        later.write_text(claim.owner.model_copy(update={"pid": 1, "host": "far", "machine": "far"}).model_dump_json())
        until(lambda: stop.reason, "that it notices")
    assert "taken the run over" in stop.reason
    assert claims.live(tmp_path).host == "far"


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(VitinitError, match="cannot write to .*file/run"),
        claims.held(tmp_path / "file" / "run", Stop()),
    ):
        pass


RACES = 20


def _race(root: Path, start, winners) -> None:
    for race in range(RACES):
        start.wait()
        try:
            with claims.held(root / str(race), Stop()) as claim:
                winners.put((race, claim.path.name))
                start.wait()  # hold it until all have tried
        except claims.Taken:
            start.wait()


def test_of_many_that_race_for_a_stale_claim_exactly_one_gets_it(tmp_path):
    context = multiprocessing.get_context("fork")
    for race in range(RACES):
        (tmp_path / str(race)).mkdir()
    for race in range(1, RACES, 2):
        stale = tmp_path / str(race) / "claim-0001.json"
        stale.write_text("{}")
        os.utime(stale, (1, 1))
    start, winners = context.Barrier(8), context.Queue()
    racers = [context.Process(target=_race, args=(tmp_path, start, winners), daemon=True) for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(PATIENCE)
        assert racer.exitcode == 0
    won = sorted(winners.get(timeout=PATIENCE) for _ in range(RACES))
    assert won == [(race, f"claim-{1 + race % 2:04d}.json") for race in range(RACES)]
    assert winners.empty()


def test_a_frozen_owner_notices_that_its_run_was_finished_by_another(tmp_path):
    """Its folder is gone, or there is one of a later beginning with the same number: neither is its own."""
    folder = tmp_path / "run"
    with claims.held(folder, Stop()) as frozen:
        shutil.rmtree(folder)
        assert frozen.lost()
        with claims.held(folder, Stop()) as other:
            assert other.path == frozen.path
            assert frozen.lost()
            assert not other.lost()
            frozen.update(3, 4, "top-1 50.0%", 60.0)
            frozen.release()
            assert claims.live(folder).since == other.owner.since
            assert claims.live(folder).epoch == 0


def test_a_lookup_that_fails_does_not_end_the_heartbeat(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "BEAT_S", 0.01)
    latest, failures = claims._latest, []

    def failing(folder: Path) -> int:
        if len(failures) < 3:
            failures.append(folder)
            raise OSError(errno.ESTALE, "Stale file handle")
        return latest(folder)

    stop = Stop()
    with claims.held(tmp_path, stop) as claim:
        monkeypatch.setattr(claims, "_latest", failing)
        until(lambda: len(failures) == 3, "three heartbeats")
        os.utime(claim.path, (1, 1))
        until(lambda: claim.path.stat().st_mtime != 1, "it beats again")
    assert stop.reason == ""


def test_what_cannot_be_read_belongs_to_somebody(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "claim-0001.json")
    assert claims.live(tmp_path) is not None  # and it does not wait for a writer

    def denied(self: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    assert claims.live(tmp_path) is not None


def _claim_and_finish(folder: Path, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(claims.Taken), claims.held(folder, Stop()) as claim:
            claim.finish()


def test_claiming_while_others_finish_is_never_an_error(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_claim_and_finish, args=(tmp_path / "run", 1.0), daemon=True) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
