"""What is no record: refused, in which words, never waited for, never counted."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stored_records import REFERENCE, WHOLE, record
from typer.testing import CliRunner

from vitinit.benchmark.records.record import RunRecord, from_bytes, to_bytes
from vitinit.benchmark.records.store import Store
from vitinit.runners.cli.store import store_app


def problem_with(study: Path, name: str = f"{REFERENCE[0].stem}.json") -> str:
    """The one line about this file; the valid record beside it is there, and this one is not counted."""
    contents = Store(study.parent).read("small")
    assert set(contents.done) == {record(1).run_id}
    assert not contents.failed
    assert not contents.skipped
    (line,) = contents.problems
    assert line.startswith(f"{study / name}: ")
    return line.removeprefix(f"{study / name}: ")


NO_RECORDS = [
    (WHOLE[:-1], "the digest does not match"),
    (WHOLE + b" ", "the digest does not match"),
    (WHOLE[: len(WHOLE) // 2], "has no digest"),
    (json.dumps(json.loads(WHOLE)).encode(), "has no digest"),
    (b"", "has no digest"),
]


def test_a_file_that_is_no_record_is_named_in_one_line_and_left_alone(study: Path) -> None:
    path = study / REFERENCE[0].name
    for content, message in NO_RECORDS:
        path.write_bytes(content)
        assert message in problem_with(study)
        assert path.read_bytes() == content
    Store(study.parent).write(record())
    kept = next(study.glob(f"{path.name}.invalid-*"))
    assert kept.read_bytes() == content
    assert set(Store(study.parent).read("small").done) == {record(0).run_id, record(1).run_id}


def test_correct_images_are_bits_in_their_order_and_records_of_before_gain_none() -> None:
    assert b'"correct"' not in WHOLE
    right = np.random.default_rng(0).permutation(np.arange(360) < round(record().score * 3.6))
    found = from_bytes(to_bytes(record(correct=base64.b64encode(np.packbits(right)).decode())))
    assert isinstance(found, RunRecord)
    assert found.correct_images == right.tolist()


def test_a_record_under_the_name_of_another_run_or_of_a_failure(study: Path) -> None:
    for name in ("0123456789abcdef.json", f"{record().run_id}.failed.json"):
        (study / name).write_bytes(WHOLE)
        assert f"holds done run {record().run_id}" in problem_with(study, name)
        (study / name).unlink()


NO_FILES: list[tuple[Callable[[Path], object], str]] = [
    (Path.mkdir, "cannot be read: Is a directory"),
    (lambda path: path.symlink_to("missing"), "cannot be read: No such file or directory"),
]


@pytest.mark.parametrize(("make", "message"), NO_FILES, ids=["folder", "broken-link"])
def test_something_else_than_a_file_is_named(study: Path, make: Callable[[Path], None], message: str) -> None:
    path = study / REFERENCE[0].name
    make(path)
    assert problem_with(study) == message
    assert Store(study.parent).outcome("small", record().run_id) is None
    Store(study.parent).write(record())
    assert len(Store(study.parent).read("small").done) == 2
    (kept,) = (name for name in study.iterdir() if ".invalid-" in name.name)
    assert kept.is_symlink() or not kept.is_file()


def test_a_name_with_control_characters_cannot_reach_the_terminal(study: Path) -> None:
    name = "\x1b]0;owned\x07\n.json"
    (study / name).write_text("{}")
    assert "has no digest" in problem_with(study, name)
    said = CliRunner().invoke(store_app, ["check", "--results", str(study.parent)]).output
    assert "owned" in said
    assert "\x1b" not in said
    assert "\x07" not in said
