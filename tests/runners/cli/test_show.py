"""`show`: finding records, and saying how to repeat a run."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.runners.small_run import NOW, altered
from vitinit.benchmark.records.record import FailureRecord
from vitinit.benchmark.records.store import Store
from vitinit.runners.cli import records as cli_records

COMMIT = "0328e11b96e3b0280217e6f2cf3ab937e2e49f10"
pytestmark = pytest.mark.usefixtures("undisturbed")


def test_show_says_how_to_repeat_a_run(recorded, vitinit):
    Store("results/local").write(recorded)
    exit_code, printed, _ = vitinit("show", recorded.run_id[:8], "--full")
    assert exit_code == 0
    assert f"top-1 {recorded.score:.2f}%" in printed
    assert f"vitinit reproduce {recorded.run_id}\n" in printed
    assert recorded.environment["source"] in printed
    assert "is that of the record" in printed
    assert "offset_maps" not in printed
    short = vitinit("show", recorded.run_id)[1]
    assert len(short.splitlines()) < 40 < len(printed.splitlines())
    assert (recorded.run_id in short, "history" in short) == (True, False)
    assert "cosine, clip_grad 1.0" in short, "fields that are not at their defaults, and no others"


@pytest.fixture
def said(recorded, monkeypatch):
    """What `show` says of a record with such an environment, in a checkout like this."""
    monkeypatch.setattr(cli_records, "_known", lambda commit: True)

    def lines(environment: dict, here: dict, root: str = "results/local") -> str:
        record = altered(recorded, environment={"argv": ["vitinit", "run", "my grid.yaml"], **environment})
        monkeypatch.setattr(cli_records, "code", lambda: here)
        path = Path(root) / "tiny" / f"{record.run_id}.json"
        return "\n".join(cli_records.how_to_repeat(cli_records.FoundRecord(Path(root), path, record), record))

    return lines


def test_how_to_repeat_depends_on_the_code(recorded, said):
    clean = {"commit": COMMIT, "dirty": False, "diff": None, "source": "1" * 64}
    other = {**clean, "commit": "b" * 40, "source": "2" * 64}
    command = f"vitinit reproduce {recorded.run_id}"
    text = said(clean, other, "other folder")
    assert f"git checkout {COMMIT} && {command} --results 'other folder'\n" in text
    assert "is not that of the record" in text
    dirty = {**clean, "dirty": True, "diff": "d" * 64}
    for here in (clean, dirty, other | {"source": clean["source"]}):
        assert said(dirty, here) == f"repeat it: {command}\nThe code that is here is that of the record."
    edited = {**dirty, "source": "2" * 64}
    assert "alone does not give the code back; the changes that are here are others" in said(
        dirty, {**edited, "diff": "e" * 64}
    )
    assert "the same changes are here" in said(dirty, edited)
    no_git = said({**clean, "commit": None, "dirty": None}, other)
    assert "git checkout" not in no_git
    assert "No git commit was recorded" in no_git
    old = said({"commit": COMMIT, "dirty": False}, other)
    assert f"here: {command}\n" in old
    assert f"git checkout {COMMIT} && vitinit run 'my grid.yaml' --only id={recorded.run_id}" in old


@pytest.mark.parametrize("words", [("--data-dir", "my data"), ("--data-dir=my data",)])
def test_the_printed_command_has_all_that_repeating_needs(recorded, words, tmp_path):
    method = {"name": "mine:Mine", "params": {}}
    argv = ["vitinit", "run", "grid.yaml", *words]
    there = json.loads(recorded.spec.model_dump_json())
    record = altered(recorded, spec={**there, "method": method}, environment={**recorded.environment, "argv": argv})
    path = Store("records").write(record)
    found = cli_records.FoundRecord(Path("records"), path, record)
    command, *said = cli_records.how_to_repeat(found, record)
    whole = ["vitinit", "reproduce", record.run_id, "--results", "records", "--trust"]
    assert shlex.split(command.removeprefix("repeat it: ")) == whole, "there is no such folder here"
    assert "--trust: it imports, and so executes, mine:Mine." in said
    (tmp_path / "my data").mkdir()
    command, *_ = cli_records.how_to_repeat(found, record)
    assert shlex.split(command.removeprefix("repeat it: ")) == [*whole[:-1], "--data-dir", "my data", "--trust"]


def test_a_foreign_record_puts_no_command_into_a_command(said):
    here = {"commit": "b" * 40, "dirty": False, "diff": None, "source": "2" * 64}
    assert "rm -rf" not in said({"commit": "x; rm -rf ~", "source": "1"}, here)
    line = said({"commit": COMMIT, "argv": ["rm", "-rf", "~; true"]}, here).splitlines()[1]
    assert shlex.split(line.partition("&& ")[2])[:3] == ["vitinit", "-rf", "~; true"]


def test_a_commit_that_is_not_here_is_said(recorded, vitinit):
    environment = {**recorded.environment, "commit": "f" * 40, "source": "2" * 64}
    Store("results/local").write(altered(recorded, environment=environment))
    assert "does not have the commit" in vitinit("show", recorded.run_id)[1]


def test_the_printed_command_brings_a_committed_record_along(recorded, monkeypatch, tmp_path):
    """The commit of a run is older than the commit of its record: the checkout would take the record away."""

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "code")
    commit = git("rev-parse", "HEAD")
    record = altered(recorded, environment={**recorded.environment, "commit": commit, "source": "2" * 64})
    path = Store("results/reference").write(record)
    git("add", "-f", "results")
    git("commit", "-qm", "records")
    found = cli_records.find(record.run_id, Path("results/local"))[0]
    assert found.path == path
    line = cli_records.how_to_repeat(found, record)[0].removeprefix("repeat it: ")
    before_it = line.rpartition(" && ")[0]
    assert line.rpartition(" && ")[2] == f"vitinit reproduce {record.run_id} --results results/reference"
    subprocess.run(["bash", "-ec", before_it], cwd=tmp_path, check=True, capture_output=True)
    assert git("rev-parse", "HEAD") == commit
    assert path.exists()
    git("checkout", "-q", "main")
    assert git("status", "--porcelain") == ""


def test_finding_reads_the_named_files_only(recorded, vitinit, monkeypatch):
    store = Store("results/local")
    store.write(recorded)
    store.write(other := altered(recorded, spec={**recorded.spec.model_dump(mode="json"), "seed": 1}))
    monkeypatch.setattr(Store, "read", lambda *_: pytest.fail("reads a whole study"))
    for record in (recorded, other):
        assert vitinit("show", record.run_id)[0] == 0
    for prefix in ("", "*", "../", recorded.run_id[:5].upper() + "G", recorded.run_id + "0", "["):
        exit_code, _, error = vitinit("show", "--", prefix)
        assert (exit_code, "no record" in error) == (2, True), prefix


def test_an_ambiguous_prefix_lists_the_runs(recorded, vitinit):
    run_ids = []
    for seed in range(40):
        record = altered(recorded, spec={**recorded.spec.model_dump(mode="json"), "seed": seed})
        Store("results/local").write(record)
        run_ids.append(record.run_id)
    digit = max("0123456789abcdef", key=lambda first: sum(run_id[0] == first for run_id in run_ids))
    exit_code, _, error = vitinit("show", digit)
    assert (exit_code, "is ambiguous" in error, error.count("\n")) == (2, True, 1)
    for run_id in sorted(run_id for run_id in run_ids if run_id[0] == digit)[: cli_records.SHOWN]:
        assert run_id in error


def test_failures_damaged_files_and_escapes(recorded, vitinit):
    common = {"run_id": recorded.run_id, "study": "tiny", "row": "r", "spec": recorded.spec, "written": NOW}
    path = Store("results/local").write(
        FailureRecord(error="E", message="[red]\x1b[31m‮m", traceback="t", execution={}, environment={}, **common)
    )
    exit_code, printed, _ = vitinit("show", recorded.run_id)
    assert exit_code == 0
    assert "[red]" in printed
    assert "\x1b" not in printed
    assert "‮" not in printed
    path.write_bytes(path.read_bytes()[:200])
    exit_code, _, error = vitinit("show", recorded.run_id)
    assert (exit_code, str(path) in error, error.count("\n")) == (2, True, 1)
    Store("results/local").write(altered(recorded, row="[bold]\x1b[2Jrow"))
    exit_code, printed, _ = vitinit("show", recorded.run_id)
    assert (exit_code, "\x1b" in printed, "[bold]" in printed) == (0, False, True)


def test_of_several_studies_with_a_run_the_latest_record_is_shown_and_the_others_are_named(recorded, vitinit):
    store, spec = Store("results/local"), recorded.spec
    old = altered(recorded, study="a", written="2026-01-01T00:00:00+00:00")
    path = store.write(old)
    trace = {"error": "RuntimeError", "message": "no", "traceback": "Traceback: of z"}
    facts = {"run_id": spec.run_id, "study": "z", "row": "Mine", "spec": spec, "written": "2026-02-01T00:00:00+00:00"}
    store.write(FailureRecord(**facts, **trace, environment={}, execution={}))
    printed = vitinit("show", recorded.run_id)[1]
    assert "Traceback: of z" in printed
    assert f"recorded as done, too, but not as late: {path}" in printed


def test_ones_own_record_is_shown_and_not_a_later_one_of_the_reference(recorded, vitinit):
    for root, row, written in (("local", "Mine", NOW), ("reference", "Theirs", "2026-02-01T00:00:00+00:00")):
        Store(f"results/{root}").write(altered(recorded, row=row, written=written))
    printed = vitinit("show", recorded.run_id)[1]
    assert ("Mine" in printed, "Theirs" in printed) == (True, False)
