"""Writing: whole or not at all, nothing lost, and which outcome of a run counts."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_records import WHOLE, failed, record, skipped, undigested

from tests.sealing import sealed
from vitinit.analysis.frame import load
from vitinit.benchmark.files import atomic
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records import store
from vitinit.benchmark.records.record import from_bytes, to_bytes
from vitinit.benchmark.records.store import Layout, Store
from vitinit.benchmark.spec import LATER, RETIRED
from vitinit.initializers.errors import VitinitError

LATER_FIELDS = {
    "init": {"cached": False, "start": [], "placebo": None},
    "dataset": {"val": None},
    "history": {"val_loss": None, "val_top1": None, "images_per_s": None},
    "record": {"probes": [], "masked": [], "sessions": [], "weights": None},
}
"""What came after the first records, with the value of before it came."""


def parts_with_later_fields(content: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each part of a record with the fields that came later."""
    specs = [(content["spec"][part], later) for part, later in {**LATER, "model": ViT.later}.items()]
    rows = [(row, LATER_FIELDS["history"]) for row in content["history"]]
    whole = [(content[part], LATER_FIELDS[part]) for part in ("init", "dataset")]
    return [*specs, *rows, *whole, (content, LATER_FIELDS["record"])]


def test_a_written_record_is_a_plain_json_document_that_reads_back_the_same(tmp_path: Path) -> None:
    path = Store(tmp_path).write(record())
    content = json.loads(path.read_bytes())
    assert content.pop("digest")
    read = undigested()
    for part, later in parts_with_later_fields(read):
        part |= later | part
    for name in RETIRED:
        read["spec"]["recipe"].pop(name, None)
    assert content == read
    assert Store(tmp_path).read("small").done == {record().run_id: record()}


def test_fields_that_came_later_have_defaults_in_old_records() -> None:
    old, expected = undigested(), undigested()
    for part, later in parts_with_later_fields(old):
        for field in later.keys() & part.keys():
            del part[field]
    for part, later in parts_with_later_fields(expected):
        part |= later
    for name in RETIRED:
        expected["spec"]["recipe"].pop(name, None)
    assert json.loads(to_bytes(from_bytes(sealed(old)))).items() >= expected.items()


def test_a_flipped_bit_is_noticed_wherever_it_is() -> None:
    content = bytearray(WHOLE)
    for position in [*range(0, len(content), 29), *range(len(content) - 60, len(content))]:
        bit = 1 << position % 8
        content[position] ^= bit
        with pytest.raises(VitinitError):
            from_bytes(bytes(content))
        content[position] ^= bit
    assert from_bytes(bytes(content)) == record()


def test_an_outcome_that_does_not_validate_is_not_written(tmp_path: Path) -> None:
    for wrong in (record(run_id="0" * 16), record(seconds=-1.0), record(study="../../elsewhere"), record(history=[])):
        with pytest.raises(VitinitError, match="refusing to write"):
            Store(tmp_path / "results").write(wrong)
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_disk_is_one_line_and_changes_nothing(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in study.iterdir()}
    changed = record(1, seconds=1.0)
    real = Path.open

    def failing(number: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        return fail

    def full(path: Path, mode: str, **options: Any) -> Any:
        """A file on a disk that has just become full."""
        return real(Path("/dev/full"), "wb", buffering=0) if mode == "xb" else real(path, mode, **options)

    for place, name, fault, number in (
        (atomic.os, "fsync", failing(errno.EIO), errno.EIO),
        (Path, "replace", failing(errno.EACCES), errno.EACCES),
        (Path, "open", full, errno.ENOSPC),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fault)
            with pytest.raises(VitinitError) as info:
                Store(study.parent).write(changed)
        assert str(info.value) == f"cannot write {study / f'{changed.run_id}.json'}: {os.strerror(number)}"
        assert {path: path.read_bytes() for path in study.iterdir()} == before


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
    (tmp_path / "small" / f"{run.run_id}.json").write_bytes(WHOLE[:-30])
    assert files.outcome("small", run.run_id) == failed(run), "a damaged record counts as absent"


def test_a_failure_hides_a_skip(tmp_path: Path) -> None:
    """Both of one run may lie there: the data may be missing now on another machine."""
    run, files = record(), Store(tmp_path)
    early, late = (run.model_copy(update={"written": f"2026-01-0{day}T00:00:00Z"}) for day in (1, 2))
    files.write(failed(early))
    files.write(skipped(late))
    for contents in (files.read("small"), load([tmp_path]).contents):
        assert (contents.failed.keys(), contents.skipped) == ({run.run_id}, {})
    path = tmp_path / "small" / f"{run.run_id}.skipped.json"
    path.write_bytes(b"damaged")
    files.unskip("small", run.run_id)
    files.unskip("small", run.run_id)
    assert [kept.read_bytes() for kept in path.parent.glob(f"{path.name}.invalid-*")] == [b"damaged"]
    assert not path.exists()


def test_supersede_renames_and_deletes_nothing(tmp_path: Path) -> None:
    run, files = record(), Store(tmp_path)
    done = files.write(run)
    files.write(failed(run, "later"))
    content = done.read_bytes()
    weights = [store.weights_path(tmp_path, "small", run.run_id, ema) for ema in (False, True)]
    weights[0].parent.mkdir()
    for path in weights:
        path.write_text(path.name)
    moved = files.supersede("small", run.run_id)
    assert moved[0].read_bytes() == content
    assert [path.read_text() for path in moved[2:]] == [path.name for path in weights]
    assert files.supersede("small", run.run_id) == []
    contents = files.read("small")
    assert (contents.done, contents.failed, contents.problems) == ({}, {}, [])
    assert files.survey("small").superseded == 2
    assert files.outcome("small", run.run_id) is None
    files.write(run)
    assert set(files.read("small").done) == {run.run_id}


# --- what tables need of a grid ---


def test_the_layout_is_that_of_the_last_grid_and_loses_no_label(tmp_path: Path) -> None:
    files = Store(tmp_path)
    assert files.layout("small") == Layout()
    first = Layout(rows=["B", "A\n[é]"], contrasts=[("A\n[é]", "B")])
    files.write_layout("small", first)
    assert files.layout("small") == first
    files.write_layout("small", Layout(rows=["C", "B"]))
    both = Layout(rows=["C", "B", "A\n[é]"], contrasts=first.contrasts)
    assert files.layout("small") == both, "a label that the grid has no more may have records"
    assert files.studies() == [], "it is no record"
    path = tmp_path / "small" / "LAYOUT"
    before = path.stat().st_mtime_ns, path.stat().st_ino
    files.write_layout("small", Layout(rows=["C", "B"]))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before, "nothing to put down"


def test_a_file_that_is_no_layout_is_named_and_written_anew(tmp_path: Path) -> None:
    files, path = Store(tmp_path), tmp_path / "small" / "LAYOUT"
    path.parent.mkdir()
    for content in (b"[]", b'{"rows": ["A", 1]}', b"{", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(VitinitError, match="small/LAYOUT: does not hold the rows and contrasts of a grid"):
            files.layout("small")
        files.write_layout("small", Layout(rows=["A"]))
        assert files.layout("small").rows == ["A"]
