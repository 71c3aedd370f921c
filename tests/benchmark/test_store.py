"""What is no record: refused, in which words, never waited for, never counted."""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from stored_records import EVIL, REFERENCE, WHOLE, failed, record, skipped, undigested
from typer.testing import CliRunner

from tests.sealing import sealed
from vitinit.benchmark.records.record import Masked, RunRecord, from_bytes, to_bytes
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import VitinitError, explain, plain
from vitinit.runners.cli.store import store_app


def edited(change: Callable[[dict[str, Any]], object], index: int = 0) -> bytes:
    """A record's JSON without a digest, changed: only validation can find what is wrong."""
    content = undigested(REFERENCE[index])
    change(content)
    return json.dumps(content, indent=1).encode()


def at(path: str, value: Any) -> bytes:
    def change(content: Any) -> None:
        *outer, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        for key in outer:
            content = content[key]
        content[last] = value

    return edited(change)


def problem_with(study: Path, name: str = f"{REFERENCE[0].stem}.json") -> str:
    """The one line about this file; the valid record beside it is there, and this one is not counted."""
    contents = Store(study.parent).read("small")
    assert set(contents.done) == {record(1).run_id}
    assert not contents.failed
    assert not contents.skipped
    (line,) = contents.problems
    assert line.startswith(f"{study / name}: ")
    return line.removeprefix(f"{study / name}: ")


def test_a_study_that_vanishes_is_none_and_hides_no_other(study: Path) -> None:
    class Deleted(Store):
        def folders(self) -> list[str]:
            return [*super().folders(), "deleted"]  # between this and the next look

    (study.parent / "loop").symlink_to("loop")
    assert Deleted(study.parent).studies() == Store(study.parent).studies() == ["small"]


# --- what is no record ---


NO_RECORDS = [
    (WHOLE[:-1], "the digest does not match"),
    (WHOLE + b" ", "the digest does not match"),
    (json.dumps(json.loads(WHOLE)).encode(), "the digest cannot be checked"),
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


def test_a_failure_or_a_skip_without_a_digest_is_none(study: Path) -> None:
    for other in (failed(record()), skipped(record())):
        path = study / f"{other.run_id}.{other.status}.json"
        path.write_text(other.model_dump_json(indent=1))
        assert problem_with(study, path.name).startswith("has no digest")
        path.unlink()


def test_a_digest_computed_anew_hides_no_share_that_the_test_images_cannot_have(study: Path) -> None:
    content = undigested()
    images = content["dataset"]["test"]
    assert images == 360
    path = study / REFERENCE[0].name
    for top1, possible in ((73.123456, False), (100 / 361, False), (100 * 263 / 360, True), (0.0, True)):
        content["history"][-1]["test_top1"] = top1
        path.write_bytes(sealed(content))
        found = Store(study.parent).read("small")
        assert (record().run_id in found.done) == possible
        assert [line.endswith(f"of epoch 6 is no share of {images} images") for line in found.problems] == (
            [] if possible else [True]
        )


def test_a_share_of_the_masked_images_likewise() -> None:
    masked = Masked(term="content", layers=1, images=64, top1=50.0, top1_whole=100 * 33 / 64)
    assert from_bytes(to_bytes(record(masked=[masked])))
    with pytest.raises(VitinitError, match="top1_whole 51.0 is no share of 64 images"):
        to_bytes(record(masked=[masked.model_copy(update={"top1_whole": 51.0})]))


def test_a_bitmap_of_correct_images_fits_the_accuracy_and_records_of_before_gain_none() -> None:
    assert b'"correct"' not in WHOLE
    images, score = 360, record().score
    right = np.arange(images) < round(score * images / 100)
    whole = base64.b64encode(np.packbits(right)).decode()
    found = from_bytes(to_bytes(record(correct=whole)))
    assert isinstance(found, RunRecord)
    assert found.correct_images == right.tolist()
    fewer = base64.b64encode(np.packbits(right[1:])).decode()
    for wrong in (fewer, whole[:-4], whole + "AAAA", "no base64", ""):
        with pytest.raises(VitinitError, match="correct does not hold"):
            to_bytes(record(correct=wrong))
    history = [row.model_copy(update={"test_top1": row.test_top1 and 100 * 4 / 9}) for row in record().history]
    nine = record(history=history, dataset=record().dataset.model_copy(update={"test": 9}))
    for bits, holds in (((1, 1, 1, 0, 0, 0, 0, 0, 1), True), ((1, 1, 1, 0, 0, 0, 0, 0, 0, 1), False)):
        content = nine.model_copy(update={"correct": base64.b64encode(np.packbits(bits)).decode()})
        if holds:
            assert from_bytes(to_bytes(content)) == content
        else:
            with pytest.raises(VitinitError, match="correct does not hold"):
                to_bytes(content)


def test_a_record_under_the_name_of_another_run_or_of_a_failure(study: Path) -> None:
    for name in ("0123456789abcdef.json", f"{record().run_id}.failed.json"):
        (study / name).write_bytes(WHOLE)
        assert f"holds done run {record().run_id}" in problem_with(study, name)
        (study / name).unlink()


def test_a_subset_of_another_size_than_the_spec_says(study: Path) -> None:
    path = next(path for path in REFERENCE[2:] if json.loads(path.read_bytes())["spec"]["dataset"]["train_size"])
    content = undigested(path)
    content["dataset"]["train"] += 1
    (study / path.name).write_text(json.dumps(content))
    assert "5001 training images, but train_size 5000" in problem_with(study, path.name)


# --- what is no file ---


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
    assert "JSON of another kind" in problem_with(study, name)
    said = CliRunner().invoke(store_app, ["check", "--results", str(study.parent)]).output
    assert "owned" in said
    assert "\x1b" not in said
    assert "\x07" not in said


def test_a_file_that_may_not_be_read(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = study / REFERENCE[0].name
    path.write_bytes(WHOLE)
    real = Path.read_bytes

    def refuse(self: Path) -> bytes:
        if self == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert problem_with(study) == "cannot be read: Permission denied"


def test_a_folder_that_may_not_be_read(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert Store(study.parent).read("small").problems == [f"{study}: cannot be read: Permission denied"]


def test_folders_beside_the_records_and_temporary_files_are_no_records(study: Path) -> None:
    for name in ("unfinished/0123456789abcdef/claim.json", "weights/0123456789abcdef.pt", ".x.json.1.2.tmp"):
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        (study / name).write_text("{")
    contents = Store(study.parent).read("small")
    assert (len(contents.done), contents.problems) == (1, [])


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
