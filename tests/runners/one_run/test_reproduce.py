"""`reproduce`: repeating a run, and telling what differs."""

import io
import json
import os
import signal
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import yaml

from tests.processes import ROOT
from tests.runners.small_run import NOW, THREAD, altered
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli.records import check_trusted
from vitinit.runners.one_run.reproduce import _leaves, compare, execution, repeat
from vitinit.studies import load

pytestmark = pytest.mark.usefixtures("vitinit")


# Repeating


def test_a_run_repeated_by_its_record_is_bitwise_equal(recorded, vitinit, tmp_path):
    Store("results/local").write(recorded)
    exit_code, printed, _ = vitinit(f"reproduce {recorded.run_id[:6]}")
    assert exit_code == 0, printed
    assert "bitwise equal" in printed
    out = Store("results/reproduced")
    again = out.outcome("tiny", recorded.run_id)
    assert again.weights == recorded.weights
    assert (again.execution["threads"], again.execution["device"]) == (THREAD, "cpu")
    assert Store("results/local").outcome("tiny", recorded.run_id) == recorded, "the original is as it was"
    folder = tmp_path / "results/reproduced/tiny"
    assert vitinit(f"reproduce {recorded.run_id}")[0] == 0
    assert len(list(folder.glob(f"{recorded.run_id}.json.superseded-*"))) == 1
    assert len(list(folder.glob("*.json"))) == 1, "it ran again, and the earlier repetition was kept"


def test_a_repetition_that_is_stopped_goes_on(recorded, tmp_path):
    display = MagicMock()
    display.event = lambda run_id, event: os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        repeat(recorded, execution(recorded), tmp_path / "out", tmp_path, display)
    assert list((tmp_path / "out").rglob("*")) == [tmp_path / "out/tiny"], "it goes on from nothing that is shared"
    again = repeat(recorded, execution(recorded), tmp_path / "out", tmp_path, MagicMock())
    assert [session.from_step > 0 for session in again.sessions] == [False, True]
    assert compare(recorded, again).different == {}


def test_a_repetition_reads_files_as_the_run_did(recorded):
    """Prepared for FFCV since then, they have other pixels; of decoded images either loader has the same."""
    for loader, again in {"resident": "resident", "full-size": "full-size", "ffcv": "auto"}.items():
        then = altered(recorded, execution={**recorded.execution, "loader": loader})
        assert execution(then).loader == again


# What stands in the way


def test_a_run_that_cannot_be_repeated_here_says_why(recorded, vitinit):
    whole = json.loads(recorded.model_dump_json())
    there = whole["spec"]
    foreign = {
        "svhn is not here: put train_32x32.mat": {"spec": {**there, "dataset": {**there["dataset"], "name": "svhn"}}},
        ", not 000000000000": {"dataset": {**whole["dataset"], "checksum": "0" * 64}},
        "finds no xpu device here": {"execution": {"device": "xpu", "threads": 1}},
    }
    for number, (words, changes) in enumerate(foreign.items()):
        record = altered(recorded, **changes)
        Store(f"records/{number}").write(record)
        exit_code, _, error = vitinit(f"reproduce {record.run_id} --results records/{number}")
        assert exit_code == 2, words
        assert words in error
        assert error.count("\n") == 1
    assert not Path("results/reproduced").exists(), "nothing was begun"


MISCHIEF = """
base: {name: 'mischief:Class', params: {}}
model: {arch: python, python: 'mischief:Class', image_size: 8, args: {}}
dataset: {name: 'mischief.py:Class@0000000000000000'}
method: {name: placebo, params: {of: {name: placebo, of: {name: 'mischief:Class'}}}}
"""


def test_code_that_a_record_names_is_imported_only_when_trusted(recorded, vitinit, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "mischief", raising=False)
    (tmp_path / "mischief.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    there = json.loads(recorded.spec.model_dump_json())
    for part, value in yaml.safe_load(MISCHIEF).items():
        record = altered(recorded, spec={**there, part: value})
        Store("results/local").write(record)
        exit_code, _, error = vitinit(f"reproduce {record.run_id}")
        assert (exit_code, "--yes" in error, ":Class" in error) == (2, True, True), part
        with pytest.raises(VitinitError, match="trust=True"):
            load(record.run_id, "results/local")
        vitinit(f"show {record.run_id}")
    hf = altered(recorded, spec={**there, "dataset": {**there["dataset"], "name": "hf", "path": "evil/repo"}})
    with pytest.raises(VitinitError, match="needs hf:evil/repo, which would be executed, fetched or read"):
        check_trusted(hf, False)
    with pytest.raises(VitinitError, match="execution: threads"):
        execution(altered(recorded, execution={"device": "cpu", "threads": 10**9}))
    with monkeypatch.context() as at_a_terminal:
        at_a_terminal.setattr(sys, "stdin", io.StringIO("n\n"))
        at_a_terminal.setattr(sys.stdin, "isatty", lambda: True)
        exit_code, asked, _ = vitinit(f"reproduce {record.run_id}")
    assert (exit_code, "mischief:Class. Go on? [y/N]" in asked) == (2, True), asked
    assert not Path("executed").exists()
    exit_code, _, error = vitinit(f"reproduce {record.run_id} --yes")
    assert (exit_code, Path("executed").exists()) == (2, True), error


# Comparing


def test_what_differs_is_counted_and_told_with_what_may_explain_it(recorded):
    again = altered(
        recorded, written=NOW, seconds=1e6, init={**json.loads(recorded.init.model_dump_json()), "seconds": 9}
    )
    found = compare(recorded, again)
    assert (found.different, found.environment, found.causes) == ({}, {}, [])
    assert found.verdict == f"bitwise equal: all {found.values} values that the record holds, times aside"
    norms = json.loads(recorded.init.model_dump_json())
    then = norms["norms"][0]["query"][0]
    norms["norms"][0]["query"][0] += 0.5
    elsewhere = {**recorded.environment, "python": "3.0"}
    on_two = {**recorded.execution, "threads": 2}
    other = compare(recorded, altered(recorded, weights="0" * 64, init=norms, environment=elsewhere, execution=on_two))
    query = "init.norms.0.query.0"
    assert other.different == {query: (then, then + 0.5), "weights": (recorded.weights, "0" * 64)}
    here = recorded.environment["python"]
    assert other.environment == {"execution.threads": (1, 2), "python": (here, "3.0")}
    assert other.verdict == (
        f"2 of {found.values} values differ, first {query}: {then} then, {then + 0.5} now; this may explain it: "
        "execution.threads, python"
    )
    rows = json.loads(recorded.model_dump_json())["history"]
    rows[-1]["metrics"]["invented"] = 99.9
    own = compare(altered(recorded, history=rows), recorded)
    assert own.different == {f"history.{len(rows) - 1}.metrics.invented": (99.9, "nothing")}
    assert own.causes == ["metrics of one's own (--metric), which are not measured again"]
    alone = altered(recorded, weights="0" * 64)
    assert compare(recorded, alone).verdict.endswith("; nothing recorded explains it")
    alone.environment["changed_while_running"] = [{"from_step": 1, "changed": {"threads": [1, 2]}}]
    for pair in ((recorded, alone), (alone, recorded)):
        assert compare(*pair).verdict.endswith("; this may explain it: threads between sessions")
    on_gpu = altered(recorded, execution={**recorded.execution, "device": "cuda"})
    assert compare(recorded, on_gpu).causes == ["execution.device", "a GPU without --deterministic"]


@pytest.mark.long
@pytest.mark.parametrize("row", ["Imp.-3", "ConViT"])
def test_committed_records_of_other_machines_are_repeated_up_to_rounding(row, tmp_path):
    done = Store(ROOT / "results/reference").read("small").done.values()
    then = next(one for one in done if (one.row, one.spec.dataset.name, one.spec.seed) == (row, "digits", 0))
    now = repeat(then, execution(then), tmp_path, tmp_path, MagicMock())
    then.init.start.clear()  # runs no longer take it
    for part in ("history", "probes", "init", "masked", "dataset", "parameters"):
        first, second = (_leaves(record.without_times()[part]) for record in (then, now))
        for place, leaf in first.items():
            assert second[place] == (pytest.approx(leaf, 1e-3, 1e-3) if isinstance(leaf, float) else leaf), part + place
