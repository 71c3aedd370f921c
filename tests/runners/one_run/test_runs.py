"""Whole runs: what stops, changes, failures of one of several processes and a GPU that does not compute do to them."""

import os
import re
from dataclasses import replace

import pytest
import torch

from tests.benchmark.dataset_helpers import folder_spec, make_folder, make_image
from tests.faults import harness
from tests.faults.harness import assert_same, setting, stopped_after
from tests.runners import job
from tests.runners.small_run import spec
from tests.runners.worlds import Died, at_call, together
from vitinit.benchmark.datasets import registry as datasets
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics import gpu
from vitinit.runners.basics.setting import Stop
from vitinit.runners.launching import cluster
from vitinit.runners.one_run import claims
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.training import train
from vitinit.runners.training.distributed import joined
from vitinit.slurm import jobs as slurm_jobs

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_run_whose_images_or_own_files_have_changed_is_refused_until_they_are_put_back(tmp_path):
    make_folder(tmp_path / "pets", {"cat": 25, "dog": 25})
    cell, path = Cell("folder", spec(dataset=folder_spec(tmp_path / "pets"))), tmp_path / "pets/dog/024.png"
    whole, resumed = setting(tmp_path / "whole"), setting(tmp_path / "resumed")
    carry_out(cell, whole, Stop())
    assert not whole.folder(cell.run_id).exists(), "of a finished run only its record is left"
    stopped_after(1, cell, resumed)
    kept = path.read_bytes()
    make_image(path, 0)
    other = replace(resumed, measures=("mine.py:size@0123456789abcdef",))
    for where, why in ((resumed, f"images have changed .* remove unfinished/{cell.run_id}"), (other, "mine.py")):
        end = carry_out(cell, where, Stop())
        assert (end.status, bool(re.search(why, end.reason))) == ("refused", True)
    path.write_bytes(kept)
    carry_out(cell, resumed, Stop())
    assert_same(whole, resumed, cell)


def test_a_run_that_another_process_has_taken_over_at_its_end_is_not_recorded(tmp_path):
    cell, where = Cell("small", spec()), setting(tmp_path)
    folder = where.folder(cell.run_id)

    def taken_over(event):
        if event.epoch == cell.spec.recipe.epochs:
            (folder / "claim-2.json").write_text(claims.UNKNOWN.model_dump_json())

    end = carry_out(cell, where, Stop(), taken_over)
    assert (end.status, end.reason) == ("stopped", "another process has taken the run over")
    assert Store(where.root).outcome("faults", cell.run_id) is None


def test_what_changed_before_an_earlier_session_is_not_forgotten(tmp_path):
    """Another code and execution from the second of three sessions on; the time is that of all three."""
    cell, before = (
        Cell("small", spec(recipe=Recipe(name="small", epochs=3, batch_size=50, lr=1e-3))),
        replace(setting(tmp_path), code={"source": "one"}),
    )
    execution = replace(before.execution, micro_batch=20)
    since = replace(before, code={"source": "another"}, execution=execution)
    stopped_after(1, cell, before)
    stopped_after(2, cell, since)
    end = carry_out(cell, since, Stop())
    (change,) = end.environment["changed_while_running"]
    assert change["from_step"] == 2
    assert change["changed"]["source"] == ["one", "another"]
    assert change["changed"]["execution.micro_batch"] == [None, 20]
    assert len(end.sessions) == 3
    assert end.seconds == pytest.approx(sum(session.seconds for session in end.sessions))


# --- failures, and a GPU that does not compute, which fails no run ---


NOWHERE = "xpu"
"""Kind of accelerator that is not here."""
STICKY = "CUDA error: unspecified launch failure\nCompile with TORCH_USE_CUDA_DSA"


def lose(error=STICKY):
    """Raise an error of CUDA, after which the device of this process computes no more."""
    gpu.check = refuse
    raise RuntimeError(error)


def refuse(device):
    raise gpu.broken(device, RuntimeError(STICKY))


@pytest.fixture
def breaks(monkeypatch):
    """Break the device of this process at an optimiser step to come."""
    monkeypatch.setattr(gpu, "check", gpu.check)

    def at(step, error=STICKY):
        monkeypatch.setattr(gpu, "check", lambda device: None)
        monkeypatch.setattr(train, "update", at_call(step, train.update, lambda: lose(error)))

    return at


def test_a_run_that_loses_its_device_goes_on_from_its_checkpoint_and_fails_if_it_loses_another(tmp_path, breaks):
    where, cell = harness.setting(tmp_path), harness.cells(tmp_path)[0]
    store = Store(where.root)
    for failures in (0, 1):
        breaks(5)
        if failures:
            assert carry_out(cell, where, Stop()).status == "failed"
        else:
            with pytest.raises(gpu.BrokenDevice, match="unspecified launch failure"):
                carry_out(cell, where, Stop())
        assert len(store.read(where.study).failed) == failures
    retried = {run_id: failed.written for run_id, failed in store.read(where.study).failed.items()}
    breaks(5)
    with pytest.raises(gpu.BrokenDevice):  # tried again, it may lose one again
        carry_out(cell, replace(where, retried=retried), Stop())
    breaks(10**6)
    record = carry_out(cell, replace(where, retried=retried), Stop())
    assert record.status == "done"
    assert record.sessions[-1].from_step > 0


def test_an_index_out_of_range_on_the_device_is_an_error_of_the_run(tmp_path, breaks):
    """The device of the process is lost with it: the next run of the process does not begin."""
    where, cells = harness.setting(tmp_path), harness.cells(tmp_path)[:2]
    breaks(3, "CUDA error: device-side assert triggered")
    assert carry_out(cells[0], where, Stop()).status == "failed"
    with pytest.raises(gpu.BrokenDevice):
        carry_out(cells[1], where, Stop())
    assert Store(where.root).read(where.study).failed.keys() == {cells[0].run_id}


@pytest.mark.parametrize(
    ("restarts", "shown", "allowed", "requeued"),
    [(2, 2, True, True), (0, 0, False, False), (0, 1, False, True), (3, 3, True, False)],
)
def test_a_job_on_a_broken_node_is_requeued_where_that_is_allowed(
    tmp_path, cluster_says, monkeypatch, restarts, shown, allowed, requeued
):
    """The end of a requeued job may come before the answer: then the job shows one restart more."""
    said = "exit 0" if allowed else "echo 'scontrol: error: requeue is disabled' >&2; exit 1"
    state = f"JobId=7 JobState=RUNNING Restarts={shown} "
    cluster_says(scontrol=f'echo "$@" >> {tmp_path}/asked; case "$*" in *show*) echo "{state}";; *) {said};; esac')
    (tmp_path / "asked").touch()
    for name, value in job.JOB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restarts))
    monkeypatch.setattr(slurm_jobs.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(cluster, "_work", lambda *_: refuse(torch.device(NOWHERE)))
    with pytest.raises(SystemExit) as end:
        cluster.work_in_job(job.todo(tmp_path))
    assert end.value.code == (0 if requeued else 1)
    assert ("requeue 7" in (tmp_path / "asked").read_text()) == (restarts < 3)
    contents = Store(tmp_path).read("smoke")
    assert (contents.done, contents.failed) == ({}, {})


def broken_in_rank_1(cells, where, at_once):
    """Carry out runs while the device of rank 1 is broken at once, or at its third step."""
    if os.environ["RANK"] == "1":
        gpu.check = refuse if at_once else lambda device: None
        train.update = at_call(3, train.update, lose)
    with joined("cpu") as world:
        try:
            for cell in cells:
                carry_out(cell, where, Stop(), world=world)
        except gpu.BrokenDevice as error:
            return [str(error)]
    return []


@pytest.mark.long
def test_a_process_whose_device_breaks_ends_all_without_a_failure(tmp_path):
    where, cells = harness.setting(tmp_path), harness.cells(tmp_path)[:2]
    first, second = together(2, broken_in_rank_1, cells, where, True)
    assert first == second
    assert "rank 1 of 2" in first[0]
    first, second = together(2, broken_in_rank_1, cells, where, False)
    assert isinstance(second, Died)
    assert Store(where.root).read(where.study).failed == {}


def fail(cells, where):
    """Data that rank 1 cannot read; a loss that is no number; batches too small to share; then rank 1 fails alone."""
    if os.environ["RANK"] == "1":
        for error in (OSError("no such file"), VitinitError("it is no image")):
            datasets.load = at_call(1, datasets.load, lambda error=error: (_ for _ in ()).throw(error))
    with joined("cpu") as world:
        where = replace(where, execution=replace(where.execution, processes=world.size))
        assert carry_out(cells[0], where, Stop(), world=world).reason == "rank 1 of 2: it is no image"
        for cell in cells:
            assert carry_out(cell, where, Stop(), world=world).status == "failed"
            if cell == cells[2] and world.rank == 1:

                def out_of_memory():
                    raise torch.OutOfMemoryError("no memory left")

                train.update = at_call(3, train.update, out_of_memory)


@pytest.mark.long
def test_a_failure_in_several_processes(tmp_path):
    """A failure that all know of is recorded, and the next run begins; one of a single process ends both."""
    spec = harness.cell_of("mimetic", tmp_path).spec
    recipes = [{}, {"lr": 1e20, "eps": 1e-30}, {"batch_size": 1}, {"weight_decay": 0.01}]
    cells = [
        Cell("mimetic", spec.model_copy(update={"recipe": spec.recipe.model_copy(update=recipe)})) for recipe in recipes
    ]
    where = harness.setting(tmp_path / "failing")
    ranks = together(2, fail, cells, where)
    assert [isinstance(rank, Died) and rank.exitcode for rank in ranks] == [1, 1]
    failed = Store(where.root).read("faults").failed
    errors = [(failed[cell.run_id].error, failed[cell.run_id].message) for cell in cells]
    assert errors[0] == ("OSError", "rank 1 of 2: no such file")
    assert errors[1][0] == "Diverged"
    assert errors[2] == ("VitinitError", "2 processes cannot share batches of 1 images: 1 to 1 can")
    assert errors[3] == ("OutOfMemoryError", "rank 1 of 2: no memory left")
    assert "out_of_memory" in failed[cells[3].run_id].traceback
    assert failed[cells[3].run_id].execution["processes"] == 2
