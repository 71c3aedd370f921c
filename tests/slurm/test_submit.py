"""What needs no cluster: the script, how arrays share a limit, what can be submitted, where logs are."""

import shlex
import sys
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from slurm.errors import SlurmError
from slurm.jobs import log_files
from slurm.profiles import Profile
from slurm.submit import script, split
from slurm.task import Task

GOLDEN = Path(__file__).parent / "golden" / "script.sh"


def test_script_is_the_golden_one(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")  # no cluster
    profile = Profile(
        partition="gpu",
        account="lab",
        qos="long",
        constraint="a100|h100",
        nodes=2,
        gpus=4,
        gpu_type="a100",
        cpus=8,
        memory="64G",
        time="1-00:00:00",
        parallel=3,
        signal_seconds=300,
        setup=("module load cuda", "ulimit -n 4096"),
        environment={"WORDS": "two words"},
        sbatch={"mail-type": "FAIL", "exclusive": True, "overcommit": False},
    )
    text = script(profile, 10, Path("/shared/my jobs"), "name", Path("/shared/code"))
    assert text.replace(shlex.quote(sys.executable), "PYTHON") == GOLDEN.read_text()


def test_defaults_ask_for_nothing_a_cluster_may_not_know():
    lines = script(Profile(), 1, Path("/f"), "name", Path("/c")).splitlines()
    options = {line.split()[1].partition("=")[0].strip("-") for line in lines if line.startswith("#SBATCH")}
    assert options == {
        *("cpus-per-task", "job-name", "nodes", "ntasks-per-node"),
        *("open-mode", "output", "requeue", "signal", "time"),
    }


def test_requeueing_can_be_turned_off():
    for sbatch in ({"requeue": False}, {"no-requeue": True}):
        assert "#SBATCH --requeue" not in script(Profile(sbatch=sbatch), 1, Path("/f"), "name", Path("/c"))


def test_arrays_share_the_limit():
    for count, parallel, limit in product((0, 1, 5, 6, 7, 2500), (None, 1, 2, 3, 20, 1000), (1, 6, 1001)):
        arrays = split(count, parallel, limit)
        assert sum(array.size for array in arrays) == count
        assert all(1 <= array.size <= limit and array.parallel >= 1 for array in arrays)
        assert len(arrays) == -(-count // limit)
        if parallel is None:
            assert all(array.parallel == array.size and array.after is None for array in arrays)
            continue
        lane = {}
        for i, array in enumerate(arrays):  # the arrays of a lane run one after another
            lane[i] = i if array.after is None else lane[array.after]
            assert array.after is None or array.after < i
            assert array.parallel == arrays[lane[i]].parallel
        assert sum(arrays[i].parallel for i in set(lane.values())) == (parallel if arrays else 0)


def test_no_two_arrays_wait_for_the_same_one():
    after = [array.after for array in split(2500, 3, 100) if array.after is not None]
    assert len(after) == len(set(after)) == 22


def in_a_script(argument: int) -> None: ...


def test_functions_that_a_job_could_not_import_are_refused_at_once():
    Task(partial(print, "x"))
    with pytest.raises(SlurmError, match="cannot be submitted"):
        Task(lambda argument: None)
    in_a_script.__module__ = "__main__"
    sys.modules["__main__"].in_a_script = in_a_script
    try:
        with pytest.raises(SlurmError, match="jobs cannot import a script; move it to a module"):
            Task(in_a_script)
    finally:
        del sys.modules["__main__"].in_a_script


def test_log_files_are_those_of_one_job_in_the_order_of_ranks(tmp_path):
    for rank in (0, 2, 10):
        (tmp_path / f"12_1_{rank}_log.out").touch()
    for other in ("12_10_0_log.out", "12_1_0_result.pkl", "2_1_0_log.out", "12_submission.sh"):
        (tmp_path / other).touch()
    assert [path.name for path in log_files(tmp_path, "12_1")] == [f"12_1_{rank}_log.out" for rank in (0, 2, 10)]
    assert log_files(tmp_path, "12") == []
