"""`reproduce`: repeating a run, and telling what differs."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
import torch

from tests.runners.small_run import NOW, THREAD, altered
from tests.sealing import sealed
from vitinit.benchmark.records.record import FailureRecord, SkipRecord
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.environment import ROOT
from vitinit.runners.basics.machine import MOST_THREADS
from vitinit.runners.basics.stop import Stopped
from vitinit.runners.loaders import choice
from vitinit.runners.one_run.reproduce import compare, execution, repeat

REFERENCE = ROOT / "results" / "reference"
pytestmark = pytest.mark.usefixtures("undisturbed")


class Silent:
    """A display that shows nothing and can do something at every event."""

    def __init__(self, on_event=lambda event: None):
        self.event = on_event

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def begin(self, cells, work):
        assert len(cells) == len(work) == 1

    def start(self, cell): ...

    def end(self, outcome): ...


def results(comparison) -> dict[str, str]:
    return {line.what: line.result for line in comparison.lines}


# Repeating


def test_a_run_repeated_by_its_record_is_bitwise_equal(recorded, vitinit, tmp_path):
    Store("results/local").write(recorded)
    exit_code, printed, _ = vitinit("reproduce", recorded.run_id[:6])
    assert exit_code == 0, printed
    assert "bitwise equal" in printed
    assert "largest difference" not in printed
    out = Store("results/reproduced")
    again = out.outcome("tiny", recorded.run_id)
    assert again.weights == recorded.weights
    assert (again.execution["threads"], again.execution["device"]) == (THREAD, "cpu")
    assert Store("results/local").outcome("tiny", recorded.run_id) == recorded, "the original is as it was"
    folder = tmp_path / "results/reproduced/tiny"
    assert vitinit("reproduce", recorded.run_id)[0] == 0
    assert len(list(folder.glob(f"{recorded.run_id}.json.superseded-*"))) == 1
    assert len(list(folder.glob("*.json"))) == 1, "it ran again, and the earlier repetition was kept"


def test_of_several_records_of_a_run_that_of_this_processor_is_repeated(recorded, vitinit):
    store, elsewhere = Store("results/local"), {**recorded.environment, "cpu": {"model": "another"}}
    store.write(altered(recorded, study="a", environment=elsewhere))
    path = store.write(altered(recorded, study="b"))
    exit_code, printed, _ = vitinit("reproduce", recorded.run_id)
    assert exit_code == 0
    assert f"repeating {path} on cpu" in printed


def test_a_changed_record_differs(recorded, vitinit):
    history = [row.model_dump() for row in recorded.history]
    history[0]["test_top1"] += 100 * 5 / recorded.dataset.test
    size = abs(history[0]["test_top1"] - recorded.history[0].test_top1)
    Store("results/local").write(altered(recorded, history=history))
    exit_code, printed, _ = vitinit("reproduce", recorded.run_id)
    assert exit_code == 1
    assert f"largest difference {size:.3g}, first in epoch 1" in printed
    assert printed.count("largest difference") == 1
    assert "nothing that is recorded of the environment explains it" in printed


def test_other_probes_are_told_apart_from_the_rest(recorded):
    assert recorded.probes
    other = [probe.model_dump() | {"effective_receptive_field": [9.0]} for probe in recorded.probes]
    lines = results(compare(recorded, altered(recorded, probes=other)))
    assert lines["attention over epochs"].startswith("largest difference")
    assert {result for what, result in lines.items() if what != "attention over epochs"} == {"equal"}


def test_a_record_of_before_there_were_fingerprints_and_without_probes(recorded, vitinit):
    content = json.loads(recorded.model_dump_json()) | {"probes": []}
    for key in ("weights", "sessions"):
        del content[key]
    for key in ("source", "diff", "flags", "cpu", "variables", "blas"):
        del content["environment"][key]
    del content["execution"]["deterministic"]
    path = Path("results/old/tiny") / f"{recorded.run_id}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(sealed(content))
    exit_code, printed, _ = vitinit("reproduce", recorded.run_id, "--results", "results/old", "--out", "elsewhere")
    assert exit_code == 0, printed
    assert "not in the record" in printed
    assert "flags.threads" in printed.partition("not known of then: ")[2]
    again = Store("elsewhere").outcome("tiny", recorded.run_id)
    assert (again.weights, again.probes) == (recorded.weights, [])


def first_epoch(record, out: Path, **changes):
    """Repeat a run until its first epoch is done."""
    rows = []

    def stop_after_it(event):
        if event.epoch:
            rows.append(event.epoch)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        repeat(record, execution(record, **changes), out, out, Silent(stop_after_it))
    (row,) = rows
    return row


@pytest.mark.long
def test_a_reference_record_can_be_repeated(tmp_path):
    """Its first epoch: on another processor than the one that recorded it, numbers are close; here usually equal."""
    then = Store(REFERENCE).outcome("small", "044feb95a2850336")
    assert then.execution["threads"] == 1
    now = first_epoch(then, tmp_path)
    assert now.lr == then.history[0].lr
    assert now.train_loss == pytest.approx(then.history[0].train_loss, rel=5e-4)
    assert now.test_loss == pytest.approx(then.history[0].test_loss, rel=5e-3)


def test_a_repetition_that_is_stopped_goes_on(recorded, tmp_path):
    first_epoch(recorded, tmp_path / "out")
    assert (tmp_path / "out/tiny/unfinished" / recorded.run_id).is_dir()
    assert Store(tmp_path / "out").outcome("tiny", recorded.run_id) is None
    again = repeat(recorded, execution(recorded), tmp_path / "out", tmp_path, Silent())
    assert len(again.sessions) == 2
    assert again.sessions[1].from_step > 0
    assert compare(recorded, again).equal


def test_another_number_of_threads_is_taken_and_named_as_a_cause(recorded, tmp_path):
    """Whether the bits differ depends on the sizes and the processor; that the threads do is always said."""
    first_epoch(recorded, tmp_path, threads=2)
    assert torch.get_num_threads() == 2
    flags = {**recorded.environment, "flags": {**recorded.environment["flags"], "threads": 2}}
    again = altered(recorded, execution={**recorded.execution, "threads": 2}, environment=flags)
    comparison = compare(recorded, again)
    assert comparison.environment["execution.threads"] == comparison.environment["flags.threads"] == (1, 2)
    assert comparison.causes == ["other flags, threads or device choose other operations"]


# What stands in the way


def test_what_was_kept_in_memory_is_kept_there_again(recorded, monkeypatch, tmp_path):
    """Perhaps by --loader resident: where the memory is small, auto would ask for FFCV."""
    monkeypatch.setattr(choice, "main_memory", lambda: 1)
    assert repeat(recorded, execution(recorded), tmp_path, tmp_path, Silent()).execution["loader"] == "resident"
    assert execution(altered(recorded, execution={"device": "cpu", "threads": 1})).loader == "auto"
    assert execution(recorded, threads=MOST_THREADS).threads == MOST_THREADS


@pytest.mark.parametrize("micro_batch", [None, 5])
def test_batches_are_cut_as_they_were(recorded, micro_batch):
    told = {"device": "cpu", "threads": 1, "micro_batch": micro_batch}
    assert execution(altered(recorded, execution=told)).micro_batch == micro_batch


def test_a_compiled_run_is_not_repeated_without_a_compiler(recorded, monkeypatch):
    compiled = altered(recorded, execution={"device": "cpu", "threads": 1, "compiled": True})
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(VitinitError, match=r"^the run was compiled: torch.compile needs a C\+\+ compiler"):
        execution(compiled)
    monkeypatch.setenv("CXX", shlex.quote(sys.executable))
    assert execution(compiled).compiled


def test_a_run_that_cannot_be_repeated_here_says_why(recorded, vitinit):
    whole = json.loads(recorded.model_dump_json())
    there = whole["spec"]
    foreign = {
        "unknown method 'nothing'": {"spec": {**there, "method": {"name": "nothing", "params": {}}}},
        "unknown field 'alpha'": {"spec": {**there, "base": {"name": "kaiming_uniform", "params": {"alpha": 1}}}},
        "gated positional": {"spec": {**there, "method": {"name": "convit_gpsa", "params": {}}}},
        "unknown dataset 'mnist'": {"spec": {**there, "dataset": {**there["dataset"], "name": "mnist"}}},
        "svhn is not here: put train_32x32.mat": {"spec": {**there, "dataset": {**there["dataset"], "name": "svhn"}}},
        "there is no folder /far/away": {
            "spec": {**there, "dataset": {**there["dataset"], "name": "folder", "path": "/far/away"}}
        },
        "those of the record 000000000000": {"dataset": {**whole["dataset"], "checksum": "0" * 64}},
        "the device 'xpu'": {"execution": {"device": "xpu", "threads": 1}},
        "--threads": {"execution": {"device": "cpu"}},
        "1,000,000,000 threads, and 4,096 are the most": {"execution": {"device": "cpu", "threads": 10**9}},
        "does not say on how many threads": {"execution": {"device": "cpu", "threads": "2"}},
    }
    for number, (words, changes) in enumerate(foreign.items()):
        record = altered(recorded, **changes)
        Store(f"records/{number}").write(record)
        exit_code, _, error = vitinit("reproduce", record.run_id, "--results", f"records/{number}")
        assert exit_code == 2, words
        assert words in error
        assert error.count("\n") == 1
    assert not Path("results/reproduced").exists(), "nothing was begun"


@pytest.mark.parametrize(
    "method",
    [
        {"name": "mischief:Class", "params": {}},
        {"name": "placebo", "params": {"of": {"name": "placebo", "of": {"name": "mischief:Class"}}}},
    ],
    ids=["itself", "placebo-of-placebo"],
)
def test_code_that_a_record_names_is_imported_only_when_trusted(recorded, vitinit, monkeypatch, tmp_path, method):
    monkeypatch.delitem(sys.modules, "mischief", raising=False)
    (tmp_path / "mischief.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    there = json.loads(recorded.spec.model_dump_json())
    record = altered(recorded, spec={**there, "method": method})
    Store("results/local").write(record)
    exit_code, _, error = vitinit("reproduce", record.run_id)
    assert (exit_code, "--trust" in error, "mischief:Class" in error) == (2, True, True)
    vitinit("show", record.run_id)
    assert not Path("executed").exists()
    exit_code, _, error = vitinit("reproduce", record.run_id, "--trust")
    assert (exit_code, Path("executed").exists()) == (2, True), error


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_of_a_gpu_without_one(recorded, vitinit):
    Store("results/local").write(altered(recorded, execution={"device": "cuda", "threads": 64, "deterministic": True}))
    exit_code, _, error = vitinit("reproduce", recorded.run_id)
    assert (exit_code, "--device cpu" in error, error.count("\n")) == (2, True, 1)
    assert vitinit("reproduce", recorded.run_id, "--device", "cuda")[0] == 2
    exit_code, printed, _ = vitinit("reproduce", recorded.run_id, "--device", "cpu", "--threads", THREAD)
    assert "execution.device: cuda then, cpu now" in printed
    assert exit_code == 0, "the numbers are those of a CPU"


def test_only_finished_runs_can_be_repeated(recorded, vitinit):
    common = {"run_id": recorded.run_id, "study": "tiny", "row": "r", "spec": recorded.spec, "written": NOW}
    Store("results/local").write(SkipRecord(reason="no data", **common))
    assert "skipped" in vitinit("reproduce", recorded.run_id)[2]
    failed = FailureRecord(error="E", message="m", traceback="t", execution={}, environment={}, **common)
    Store("results/local").write(failed)
    exit_code, _, error = vitinit("reproduce", recorded.run_id)
    assert (exit_code, "recorded as failed" in error) == (2, True)
    Store("results/reference").write(recorded)
    assert vitinit("reproduce", recorded.run_id)[0] == 0, "elsewhere it did finish"
    exit_code, _, error = vitinit("reproduce", "ffff")
    assert (exit_code, "no record of a run 'ffff'" in error) == (2, True)
    exit_code, _, error = vitinit("reproduce", recorded.run_id, "--out", "results/../results/reference")
    assert (exit_code, "--out" in error) == (2, True)


def test_a_repetition_that_fails_is_told(recorded, vitinit):
    diverging = {**json.loads(recorded.spec.model_dump_json())}
    diverging["recipe"] |= {"lr": 1e20, "eps": 1e-30, "clip_grad": None}
    record = altered(recorded, spec=diverging)
    Store("results/local").write(record)
    for _ in range(2):
        exit_code, printed, _ = vitinit("reproduce", record.run_id)
        assert (exit_code, "failed with Diverged" in printed) == (1, True)
    (Path("file")).write_text("")
    with pytest.raises(VitinitError, match="cannot write"):
        repeat(recorded, execution(recorded), Path("file"), Path(), Silent())


# Comparing


def test_differences_are_counted_part_by_part(recorded):
    norms = json.loads(recorded.init.model_dump_json())
    norms["norms"][0]["query"][0] += 0.5
    now = altered(recorded, weights="0" * 64, init={**norms, "seconds": 99.0}, seconds=1e6, written=NOW)
    found = results(compare(recorded, now))
    assert found["final weights"] == "differ"
    assert found["weight norms at initialisation"] == "largest difference 0.5"
    assert {text for what, text in found.items() if what[-14:] != "initialisation" and what != "final weights"} == {
        "equal"
    }
    with_targets = {**norms, "pseudo_input": {"mse": 0.1, "mass": 0.2, "argmax": 0.3}}
    assert results(compare(recorded, altered(recorded, init=with_targets)))["attention at initialisation"] == "differ"
    assert compare(recorded, altered(recorded, written=NOW, seconds=1e6)).equal


def test_what_may_explain_a_difference(recorded):
    def causes(then: dict, now: dict) -> list[str]:
        base = recorded.environment
        return compare(
            altered(recorded, environment={**base, **then}), altered(recorded, environment={**base, **now})
        ).causes

    clean = {"commit": "a" * 40, "dirty": False, "diff": None, "source": "1" * 64}
    assert causes(clean, clean) == []
    assert causes(clean, {**clean, "commit": "b" * 40}) == [], "the commit changed something else"
    assert "code" in causes(clean, {**clean, "source": "2" * 64})[0]
    assert "code" in causes({**clean, "source": None}, {**clean, "commit": "b" * 40})[0]
    sources = {"initializers": {"mimetic": "1" * 16}}
    assert "own file" in causes({**clean, **sources}, {**clean, "initializers": {"mimetic": "2" * 16}})[0]
    assert causes({**clean, "initializers": {}}, {**clean, **sources}) == [], "not recorded then"
    assert "libraries" in causes({**clean, "packages": {"torch": "2.6"}}, clean)[0]
    assert "processor" in causes({**clean, "processor": "other"}, clean)[0]
    assert "repetition was stopped" in causes(clean, {**clean, "changed_while_running": [{"from_step": 1}]})[0]
