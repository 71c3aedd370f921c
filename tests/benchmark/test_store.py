"""The store: what is refused, in which words, and that nothing is lost, waited for or counted wrongly."""

from __future__ import annotations

import csv
import errno
import gc
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from benchmark import atomic, store
from benchmark.atomic import write_atomically
from benchmark.export import flatten, tables
from benchmark.record import FailureRecord, RunRecord, SkipRecord, from_bytes, to_bytes
from benchmark.spec import RunSpec
from benchmark.store import Store
from initializers.errors import VitinitError, explain, plain
from runners.cli_store import store_app

REFERENCE = sorted((Path(__file__).parents[2] / "results/reference/small").glob("*.json"))
EVIL = '\x1b]0;owned\x07\x1b[2J[red]x[/red]\r\n\u202etxt, "quoted" \\begin{x} %&_'


def record(index: int = 0, **changes: Any) -> RunRecord:
    found = from_bytes(REFERENCE[index].read_bytes())
    assert isinstance(found, RunRecord)
    return found.model_copy(update=changes)


def failed(of: RunRecord, message: str = "out of memory") -> FailureRecord:
    shared = {name: getattr(of, name) for name in ("run_id", "study", "row", "spec", "written")}
    return FailureRecord(**shared, error="RuntimeError", message=message, traceback="", execution={}, environment={})


def skipped(of: RunRecord, reason: str = "no images") -> SkipRecord:
    return SkipRecord(
        **{name: getattr(of, name) for name in ("run_id", "study", "row", "spec", "written")}, reason=reason
    )


def edited(change: Callable[[dict[str, Any]], object], index: int = 0) -> bytes:
    """A record's JSON without a digest, changed: only validation can find what is wrong."""
    content = json.loads(REFERENCE[index].read_bytes())
    change(content)
    return json.dumps(content, indent=1).encode()


def at(path: str, value: Any) -> bytes:
    def change(content: Any) -> None:
        *outer, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        for key in outer:
            content = content[key]
        content[last] = value

    return edited(change)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A folder with one valid record beside which something is put."""
    Store(tmp_path).write(record(1))
    return tmp_path / "small"


def problem_with(study: Path, name: str = f"{REFERENCE[0].stem}.json") -> str:
    """The one line about this file; the valid record beside it is there, and this one is not counted."""
    contents = Store(study.parent).read("small")
    assert set(contents.done) == {record(1).run_id}
    assert not contents.failed
    assert not contents.skipped
    (line,) = contents.problems
    assert line.startswith(f"{plain(str(study / name))}: ")
    assert line.isprintable()
    return line.removeprefix(f"{plain(str(study / name))}: ")


# --- what is no record ---

WHOLE = to_bytes(record())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (WHOLE[:500], "Invalid JSON: EOF while parsing"),
        (WHOLE[:-1], "the digest does not match"),
        (WHOLE + b" ", "the digest does not match"),
        (WHOLE.replace(b'"test_top1": 7', b'"test_top1": 6', 1), "the digest does not match"),
        (json.dumps(json.loads(WHOLE)).encode(), "the digest cannot be checked"),
        (WHOLE.replace(b'"small"', b'"sma\xffl"').rpartition(b",\n ")[0] + b"}", "Invalid JSON"),
        (b"\x1f\x8b\x08\x00binary\x00\xff\xfe", "Invalid JSON"),
        (b'{"hello": "world"}', "is not a record of a run, but JSON of another kind"),
        (b"[1, 2]", "is not a record of a run, but JSON of another kind"),
        (b"null", "is not a record of a run, but JSON of another kind"),
        (b"[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        (b'{"a":' * 100_000, "Invalid JSON: recursion limit exceeded"),
        (at("run_id", "0" * 16), "is not the hash of the spec"),
        (at("study", "other"), "belongs to study 'other'"),
        (at("study", "../small"), "study: String should match pattern"),
        (at("status", "started"), "does not match any of the expected tags"),
        (at("spec.seed", 99), "is not the hash of the spec"),
        (at("spec.recipe.lr", -1), "lr: Input should be greater than 0"),
        (at("history.0.test_top1", 100.5), "test_top1: Input should be less than or equal to 100"),
        (at("history.0.test_top1", "16.4"), "test_top1: Input should be a valid number"),
        (at("history.0.test_top1", None), "test_top1: Input should be a valid number"),
        (at("history.0.seconds", -1), "seconds: Input should be greater than or equal to 0"),
        (at("history.0.train_loss", -0.5), "train_loss: Input should be greater than or equal to 0"),
        (at("history.0.train_loss", float("nan")), "train_loss: Input should be a finite number"),
        (at("history.0.epoch", 2), "history does not hold epochs 1 to 6"),
        (at("history.0.epoch", True), "epoch: Input should be a valid integer"),
        (edited(lambda content: content["history"].pop()), "history does not hold epochs 1 to 6"),
        (at("history", []), "history: List should have at least 1 item"),
        (at("seconds", -0.1), "seconds: Input should be greater than or equal to 0"),
        (at("seconds", float("inf")), "seconds: Input should be a finite number"),
        (at("seconds", True), "seconds: Input should be a valid number"),
        (at("parameters", 0), "parameters: Input should be greater than 0"),
        (at("dataset.train", -5), "train: Input should be greater than 0"),
        (at("dataset.checksum", "abc"), "checksum: String should match pattern"),
        (at("weights", "abc"), "weights: String should match pattern"),
        (at("environment.cuda", float("nan")), "environment: holds nan"),
        (at("environment.packages.torch", [1, {"x": float("-inf")}]), "environment: holds -inf"),
        (at("extra", 1), "extra: is not a field here"),
        (at("history", {"a": 1}), "history: Input should be a valid array"),
        (edited(lambda content: content.pop("history")), "history: Field required"),
    ],
)
def test_a_file_that_is_no_record_is_named_in_one_line_and_left_alone(
    study: Path, content: bytes, message: str
) -> None:
    path = study / REFERENCE[0].name
    path.write_bytes(content)
    assert message in problem_with(study)
    assert path.read_bytes() == content
    assert not path.with_name("other").exists()
    Store(study.parent).write(record())
    kept = next(study.glob(f"{path.name}.invalid-*"))
    assert kept.read_bytes() == content
    assert set(Store(study.parent).read("small").done) == {record(0).run_id, record(1).run_id}


def test_a_record_under_the_name_of_another_run(study: Path) -> None:
    (study / "0123456789abcdef.json").write_bytes(WHOLE)
    assert f"holds done run {record().run_id}" in problem_with(study, "0123456789abcdef.json")


def test_a_finished_record_under_the_name_of_a_failure(study: Path) -> None:
    (study / f"{record().run_id}.failed.json").write_bytes(WHOLE)
    assert f"holds done run {record().run_id}" in problem_with(study, f"{record().run_id}.failed.json")


def test_a_subset_of_another_size_than_the_spec_says(study: Path) -> None:
    path = next(path for path in REFERENCE[2:] if json.loads(path.read_bytes())["spec"]["dataset"]["train_size"])
    content = json.loads(path.read_bytes())
    content["dataset"]["train"] += 1
    (study / path.name).write_text(json.dumps(content))
    assert "5001 training images, but train_size 5000" in problem_with(study, path.name)


# --- what is no file ---


def a_directory(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def a_broken_link(path: Path) -> None:
    path.symlink_to("missing")


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (a_directory, "is not a file"),
        (a_pipe, "is not a file"),
        (a_link_to_itself, "cannot be read: Too many levels of symbolic links"),
        (a_broken_link, "cannot be read: No such file or directory"),
        (a_device, "is not a file"),
    ],
)
def test_something_else_than_a_file_is_named_and_never_waited_for(
    study: Path, make: Callable[[Path], None], message: str
) -> None:
    path = study / REFERENCE[0].name
    make(path)
    assert problem_with(study) == message
    assert Store(study.parent).outcome("small", record().run_id) is None
    Store(study.parent).write(record())
    assert len(Store(study.parent).read("small").done) == 2
    (kept,) = (name for name in study.iterdir() if ".invalid-" in name.name)
    assert kept.is_symlink() or not kept.is_file()


def test_a_huge_file_is_not_read(study: Path) -> None:
    with (study / REFERENCE[0].name).open("wb") as file:
        file.truncate(10**12)
    assert problem_with(study) == "has 1,000,000,000,000 bytes, which is more than a record can have"


def test_a_name_with_control_characters_cannot_reach_the_terminal(study: Path) -> None:
    name = "\x1b]0;owned\x07\n.json"
    (study / name).write_text("{}")
    assert "JSON of another kind" in problem_with(study, name)


def test_a_file_that_may_not_be_read(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = study / REFERENCE[0].name
    path.write_bytes(WHOLE)
    real = os.open

    def refuse(name: str, *arguments: Any, **options: Any) -> int:
        if str(name) == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(store.os, "open", refuse)
    assert problem_with(study) == "cannot be read: Permission denied"


def test_a_folder_that_may_not_be_read(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: str) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", folder)

    monkeypatch.setattr(store.os, "scandir", refuse)
    assert Store(study.parent).read("small").problems == [f"{study}: cannot be read: Permission denied"]


def test_folders_beside_the_records_and_temporary_files_are_no_records(study: Path) -> None:
    for name in ("unfinished/0123456789abcdef/claim-0001.json", "weights/0123456789abcdef.pt", ".x.json.1.2.tmp"):
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        (study / name).write_text("{")
    contents = Store(study.parent).read("small")
    assert (len(contents.done), contents.problems) == (1, [])


# --- writing ---


def test_a_written_record_is_a_plain_json_document_that_reads_back_the_same(tmp_path: Path) -> None:
    path = Store(tmp_path).write(record())
    content = json.loads(path.read_bytes())
    assert content.pop("digest")
    # fields that came later have defaults
    assert content == {"sessions": [], "weights": None} | json.loads(REFERENCE[0].read_bytes())
    assert Store(tmp_path).read("small").done == {record().run_id: record()}


def test_every_single_flipped_bit_is_noticed() -> None:
    content = bytearray(WHOLE)
    for position in [*range(0, len(content), 7), *range(len(content) - 60, len(content))]:
        for bit in range(8):
            content[position] ^= 1 << bit
            with pytest.raises(VitinitError):
                from_bytes(bytes(content))
            content[position] ^= 1 << bit
    assert from_bytes(bytes(content)) == record()


def test_an_outcome_that_does_not_validate_is_not_written(tmp_path: Path) -> None:
    for wrong in (record(run_id="0" * 16), record(seconds=-1.0), record(study="../../elsewhere"), record(history=[])):
        with pytest.raises(VitinitError, match="refusing to write"):
            Store(tmp_path / "results").write(wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace", "write"])
def test_an_error_of_the_disk_is_one_line_and_changes_nothing(
    study: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    before = {path: path.read_bytes() for path in study.iterdir()}
    changed = record(1, seconds=1.0)

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    class Full:
        def __init__(self, file: Any) -> None:
            self.file, self.write, self.flush, self.fileno = file, fail, file.flush, file.fileno

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    with monkeypatch.context() as patch:
        if call == "fsync":
            patch.setattr(atomic.os, "fsync", fail)
        elif call == "replace":
            patch.setattr(Path, "replace", fail)
        else:
            real = Path.open

            def open_(path: Path, mode: str) -> Any:
                return Full(real(path, mode)) if mode == "xb" else real(path, mode)

            patch.setattr(Path, "open", open_)
        with pytest.raises(VitinitError) as info:
            Store(study.parent).write(changed)
    assert str(info.value) == f"cannot write {study / f'{changed.run_id}.json'}: {os.strerror(number)}"
    assert {path: path.read_bytes() for path in study.iterdir()} == before


def test_a_folder_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "small").write_text("")
    with pytest.raises(VitinitError, match="cannot write .*: (File exists|Not a directory)"):
        Store(tmp_path).write(record())


def test_a_stop_in_the_middle_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "x", b"old")

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "x", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"old")]


def test_the_order_is_write_sync_move_sync_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real_sync, real_replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        if kind == "file":
            assert os.fstat(descriptor).st_size == 7
        calls.append(f"sync {kind}")
        real_sync(descriptor)

    def replace(path: Path, target: Path) -> Path:
        calls.append("move")
        assert path.parent == target.parent
        return real_replace(path, target)

    monkeypatch.setattr(atomic.os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomically(tmp_path / "x", b"content")
    assert calls == ["sync file", "move", "sync folder"]


# --- several outcomes of one run ---


def test_done_wins_over_failed_over_skipped(tmp_path: Path) -> None:
    run, files = record(), Store(tmp_path)
    assert files.outcome("small", run.run_id) is None
    for outcome in (skipped(run), failed(run), run):
        files.write(outcome)
        assert files.outcome("small", run.run_id) == outcome
    assert [path.name for path in (tmp_path / "small").iterdir()] == [f"{run.run_id}.json"]
    files.write(failed(run))
    assert files.outcome("small", run.run_id) == run
    assert files.read("small").failed == {}


def test_a_damaged_done_record_counts_as_absent(tmp_path: Path) -> None:
    run, files = record(), Store(tmp_path)
    path = files.write(run)
    files.write(failed(run))
    path.write_bytes(WHOLE[:-30])
    assert files.outcome("small", run.run_id) == failed(run)


def test_a_damaged_failure_is_kept_when_its_run_finishes(tmp_path: Path) -> None:
    path = Store(tmp_path).write(failed(record()))
    path.write_bytes(b"damaged")
    Store(tmp_path).write(record())
    assert [kept.read_bytes() for kept in (tmp_path / "small").glob(f"{path.name}.invalid-*")] == [b"damaged"]
    assert Store(tmp_path).read("small").problems == []


def test_supersede_renames_and_deletes_nothing(tmp_path: Path) -> None:
    run, files = record(), Store(tmp_path)
    done = files.write(run)
    files.write(failed(run, "later"))
    content = done.read_bytes()
    moved = files.supersede("small", run.run_id)
    assert len(moved) == 2
    assert moved[0].read_bytes() == content
    assert files.supersede("small", run.run_id) == []
    contents = files.read("small")
    assert (contents.done, contents.failed, contents.problems) == ({}, {}, [])
    assert files.survey("small").superseded == 2
    assert files.outcome("small", run.run_id) is None
    files.write(run)
    assert set(files.read("small").done) == {run.run_id}


def test_a_run_that_ends_while_the_folder_is_read_is_seen_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure was listed, and is gone when it is to be opened."""
    run, files = record(), Store(tmp_path)
    files.write(failed(run))
    real, calls = store.from_bytes, []
    listed = store._json_files

    def listing(folder: str) -> list[str]:
        names = list(listed(folder))
        if not calls:
            calls.append(1)
            Store(tmp_path).write(run)
        return names

    monkeypatch.setattr(store, "_json_files", listing)
    monkeypatch.setattr(store, "from_bytes", real)
    contents = files.read("small")
    assert (set(contents.done), contents.failed, contents.problems) == ({run.run_id}, {}, [])


# --- one instance remembers ---


def test_an_unchanged_file_is_not_validated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Store(tmp_path)
    for index in range(3):
        os.utime(files.write(record(index)), ns=(0, 0))
    monkeypatch.setattr(store, "_SETTLED_NS", -(10**18))  # the time of change cannot be set back
    first = files.read("small")
    read: list[bytes] = []
    monkeypatch.setattr(store, "from_bytes", lambda data: read.append(data) or from_bytes(data))
    assert files.read("small").done == first.done
    assert read == []
    (tmp_path / "small" / REFERENCE[0].name).write_bytes(b"damaged")
    again = files.read("small")
    assert (len(again.done), len(again.problems), len(read)) == (2, 1, 1)
    (tmp_path / "small" / REFERENCE[1].name).unlink()
    assert len(files.read("small").done) == 1


def test_a_file_that_has_just_changed_is_not_taken_as_known(tmp_path: Path) -> None:
    """Within one tick of its clock a file system cannot tell two contents of one size apart."""
    files = Store(tmp_path)
    path = files.write(record())
    for _ in range(20):
        path.write_bytes(WHOLE)
        assert len(files.read("small").done) == 1
        path.write_bytes(WHOLE.replace(b'"test_top1": 7', b'"test_top1": 6', 1))
        assert len(files.read("small").problems) == 1


def test_reading_leaves_garbage_collection_as_it_was(study: Path) -> None:
    Store(study.parent).read("small")
    assert gc.isenabled()
    gc.disable()
    try:
        Store(study.parent).read("small")
        assert not gc.isenabled()
    finally:
        gc.enable()


# --- the command line ---


def call(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(store_app, [str(argument) for argument in arguments])
    if isinstance(result.exception, VitinitError):
        return 2, str(result.exception)
    return result.exit_code, result.output


def test_check_of_a_sound_folder(study: Path) -> None:
    Store(study.parent).write(failed(record(2)))
    Store(study.parent).write(skipped(record(3)))
    (study / "unfinished" / record(4).run_id).mkdir(parents=True)
    Store(study.parent).write(record(5))
    Store(study.parent).supersede("small", record(5).run_id)
    code, output = call("check", "--results", study.parent)
    assert code == 0, output
    assert "small: 1 done, 1 failed, 1 skipped, 1 unfinished, 1 superseded, 0 set aside" in output
    assert "3 valid records, 0 wrong files" in output
    assert call("check", study.parent) == (code, output)


def test_check_names_everything_that_is_wrong_in_every_study(study: Path) -> None:
    Store(study.parent).write(record(2, study="other"))
    (study / "a.json").write_bytes(b"")
    (study.parent / "other" / "b.json").write_bytes(b"{")
    (study.parent / "c.json").write_bytes(WHOLE)
    fresh, old, deep = study / ".d.json.1.2.tmp", study / ".e.json.1.2.tmp", study / "unfinished/x/.step.ckpt.1.2.tmp"
    deep.parent.mkdir(parents=True)
    for path in (fresh, old, deep):
        path.write_bytes(b"half")
    for path in (old, deep):
        os.utime(path, (time.time() - 3600,) * 2)
    before = sorted(str(path) for path in study.parent.rglob("*"))
    code, output = call("check", "--results", study.parent)
    assert code == 1
    assert "2 valid records, 5 wrong files" in output
    wrong = [line for line in output.splitlines() if line.startswith("wrong: ")]
    assert [any(str(path) in line for line in wrong) for path in (old, deep, fresh)] == [True, True, False]
    assert any(line.startswith(f"wrong: {study / 'a.json'}: is empty") for line in wrong)
    assert any("other/b.json: Invalid JSON" in line for line in wrong)
    assert any(f"{study.parent / 'c.json'}: not read" in line for line in wrong)
    assert sorted(str(path) for path in study.parent.rglob("*")) == before


def test_check_of_no_folder(tmp_path: Path) -> None:
    assert call("check", tmp_path / "missing") == (2, f"no results folder {tmp_path / 'missing'}")


def test_export_quotes_what_needs_it_and_reads_back_the_same(study: Path, tmp_path: Path) -> None:
    files = Store(study.parent)
    files.write(record(row=EVIL))
    files.write(failed(record(2), f"first, line\n{EVIL}"))
    files.write(skipped(record(3), "no images; put 'a', \"b\" into c"))
    code, output = call("export", "--results", study.parent, "--out", tmp_path / "out")
    assert code == 0, output
    assert "runs.csv: 4 rows" in output
    with (tmp_path / "out/runs.csv").open(newline="", encoding="utf-8") as file:
        by_csv = {row["run_id"]: row for row in csv.DictReader(file)}
    by_pandas = pd.read_csv(tmp_path / "out/runs.csv", lineterminator=None).set_index("run_id")
    for expected in (record(row=EVIL), record(1)):
        row, other = by_csv[expected.run_id], by_pandas.loc[expected.run_id]
        assert row["row"] == other["row"] == expected.row
        assert row["status"] == "done"
        assert float(row["top1"]) == other["top1"] == expected.top1
        assert float(row["best_top1"]) == expected.best.test_top1
        assert float(row["recipe.lr"]) == expected.spec.recipe.lr
        assert json.loads(row["recipe.betas"]) == list(expected.spec.recipe.betas)
        assert row["dataset.name"] == expected.spec.dataset.name
        assert row["execution.device"] == "cpu"
        assert row["environment.commit"] == expected.environment["commit"]
    assert by_csv[record(2).run_id]["reason"] == f"RuntimeError: first, line\n{EVIL}"
    assert by_pandas.loc[record(2).run_id]["reason"] == f"RuntimeError: first, line\n{EVIL}"
    assert by_csv[record(3).run_id]["status"] == "skipped"
    assert by_csv[record(3).run_id]["top1"] == ""
    epochs = pd.read_csv(tmp_path / "out/epochs.csv")
    assert len(epochs) == len(record().history) + len(record(1).history)
    assert epochs[epochs.run_id == record().run_id].test_top1.tolist() == [e.test_top1 for e in record().history]


def test_every_field_of_a_spec_is_a_column() -> None:
    rows, _ = tables(Store(REFERENCE[0].parents[1]), ["small"])
    assert len(rows) == 36
    for row in rows:
        run = from_bytes((REFERENCE[0].parent / f"{row['run_id']}.json").read_bytes())
        spec = run.spec.model_dump(mode="json")
        if spec["method"] is None:
            del spec["method"]
        assert flatten(spec).items() <= row.items()
    assert isinstance(run.spec, RunSpec)


def test_export_of_parquet_needs_pyarrow_and_says_so(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, line = call("export", "--results", study.parent, "--out", tmp_path / "out", "--format", "parquet")
    assert (code, line) == (2, "--format parquet needs pyarrow: pip install pyarrow; --format csv needs nothing")
    assert not (tmp_path / "out").exists()


def test_export_of_parquet(study: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for index in range(36):
        Store(study.parent).write(record(index))
    assert call("export", "--results", study.parent, "--out", tmp_path / "out", "--format", "parquet")[0] == 0
    runs = pd.read_parquet(tmp_path / "out/runs.parquet")
    assert runs.top1.tolist() == [done.top1 for done in Store(study.parent).read("small").done.values()]


def test_export_of_an_unknown_study_and_of_nothing(study: Path, tmp_path: Path) -> None:
    code, line = call("export", "--results", study.parent, "--study", "smal", "--out", tmp_path / "out")
    assert code == 2
    assert "did you mean 'small'?" in line
    (tmp_path / "empty").mkdir()
    assert call("export", "--results", tmp_path / "empty")[1].startswith("no records in")


# --- text from files ---


def test_plain_text_has_one_line_and_nothing_that_a_terminal_obeys() -> None:
    assert plain(EVIL).isprintable()
    assert plain(EVIL) == '?]0;owned??[2J[red]x[/red] ?txt, "quoted" \\begin{x} %&_'
    assert plain("a\tb\n\n c\x85d\u2028e") == "a b c d e"
    assert plain("\ud800x\x00") == "?x?"
    assert plain("x" * 50, 10) == "x" * 9 + "…"
    assert str(VitinitError(f"x {EVIL}")).isprintable()


def test_an_error_shows_a_value_only_in_part(study: Path) -> None:
    """The same list inside a list, thirty levels deep, would be billions of words."""
    bomb: Any = ["lol"] * 9
    for _ in range(30):
        bomb = [bomb] * 9
    try:
        RunSpec.model_validate({"seed": bomb, "dataset": bomb})
    except ValidationError as error:  # pytest.raises would ask for its text, which is that long
        assert len(str(explain(error, "bomb"))) < 2_000
    else:
        pytest.fail("is no spec")
    (study / REFERENCE[0].name).write_bytes(at("history.0.lr", "x" * 10**6))
    assert len(problem_with(study)) <= 240
