"""The folder of records: written whole or not at all, nothing lost, what is no record refused, which outcome counts."""

import base64
import errno
import hashlib
import io
import json
import multiprocessing
import os
import tracemalloc
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from stored_records import WHOLE, failed, record, skipped

from tests.analysis.synthetic_records import dense, history
from vitinit.analysis.frame import load
from vitinit.benchmark.records.export import tables
from vitinit.benchmark.records.record import RunRecord, from_bytes, seal, to_bytes
from vitinit.benchmark.records.store import AttentionMaps, Layout, Store, at_seed_0, kept_path, maps_to_bytes, read_maps
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError

RUN = record().run_id
CHANGED = "the digest does not match: damaged, or changed after it was written"
NOT_REGULAR = "cannot be read: no regular file of at most 67,108,864 bytes"


# --- what is no record ---


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (
            lambda path: path.write_bytes(WHOLE[:-1]),
            CHANGED,
        ),
        (
            lambda path: path.write_text(json.dumps(json.loads(WHOLE))),
            "has no digest: cut short, or not written by vitinit",
        ),
        (lambda path: path.symlink_to("missing"), NOT_REGULAR),
        (os.mkfifo, NOT_REGULAR),
    ],
)
def test_what_is_no_record_is_named_counted_nowhere_and_set_aside_by_the_next_one(study, put, message):
    path, store = study / f"{RUN}.json", Store(study.parent)
    put(path)
    before = path.lstat()
    contents = store.read("small")
    assert contents.problems == [f"{path}: {message}"]
    assert (set(contents.done), contents.failed, contents.skipped) == ({record(1).run_id}, {}, {})
    assert store.outcome("small", RUN) is None
    store.write(record())
    assert set(store.read("small").done) == {RUN, record(1).run_id}
    (kept,) = study.glob(f"{path.name}.invalid-*")
    assert (kept.lstat().st_ino, kept.lstat().st_size) == (before.st_ino, before.st_size)


def test_a_flipped_bit_is_noticed_wherever_it_is():
    content = bytearray(WHOLE)
    for position in [*range(0, len(content), 29), *range(len(content) - 60, len(content))]:
        content[position] ^= 1 << position % 8
        with pytest.raises(VitinitError):
            from_bytes(bytes(content))
        content[position] ^= 1 << position % 8
    assert from_bytes(bytes(content)) == record()


def test_the_bitmap_of_correct_images_fits_the_accuracy():
    assert b'"correct"' not in WHOLE, "records of before gain none"
    right = np.random.default_rng(0).permutation(np.arange(360) < round(record().score * 3.6))
    for bits, fits in ((right, True), (~right, False), (np.append(right, [False] * 8), False)):
        changed = record(correct=base64.b64encode(np.packbits(bits)).decode())
        if fits:
            assert from_bytes(to_bytes(changed)) == changed
        else:
            with pytest.raises(VitinitError, match="done: correct does not hold the .* % of 360 images"):
                to_bytes(changed)


def test_a_field_that_stands_twice_is_refused():
    above = WHOLE.rpartition(b',\n "digest": ')[0].replace(b'\n "row": ', b'\n "row": "other",\n "row": ')
    with pytest.raises(VitinitError, match="field 'row' is there 2 times"):
        from_bytes(seal(above + b"\n}"))


def test_a_row_that_has_another_name_now_keeps_its_runs_and_the_comparisons_of_the_new_name_alone(study, vitinit):
    runs = {at_seed_0(record(1).spec): "New", "0" * 16: "Base"}
    Store(study.parent).write_layout("small", Layout(runs=runs, contrasts=[("New", "Base"), ("Old", "Base")]))
    loaded = load([study.parent], "small")
    assert (loaded.rows, [contrast.name for contrast in loaded.contrasts]) == (["New"], ["New − Base"])
    assert {row["row"] for row in tables("small", study.parent)[0]} == {"New"}
    assert "\nrow: New\n" in vitinit(f"show {record(1).run_id} --results {study.parent}")[1]


def test_a_record_of_masks_has_mean_iou_and_no_top1_and_what_does_not_fit_is_refused():
    run = dense("Mimetic", (30.123456789, 41.5))
    assert from_bytes(to_bytes(run)) == run
    assert (run.metric, run.score, run.best, run.last.scored()) == ("miou", 41.5, (2, 41.5), "mean IoU 41.5%")
    first, last = history((30.0, 41.5))
    for rows in (
        history((30.0, 41.5), also={"test_top1": 50.0}),
        [first, *history((30.0, 41.5), metric="top1")[1:]],
        history((30.0, 41.5), on="val"),
        history((30.0, 100.5)),
        [first, {**last, "test_miou": None}],
    ):
        with pytest.raises(ValueError, match="history"):
            RunRecord.model_validate_json(json.dumps({**json.loads(run.model_dump_json()), "history": rows}))


def test_the_main_metric_of_a_dataset_that_is_not_here_is_one_that_it_can_have():
    run = record()
    spec = run.spec.model_copy(update={"dataset": DatasetSpec(name="mine.py:X@0123456789abcdef")})
    for metric, value, fits in (("top5", 99.0, True), ("top5", 101.0, False), ("miou", 99.0, False)):
        rows = [row.model_copy(update={"headline": metric, "metrics": {metric: value}}) for row in run.history]
        changed = run.model_copy(update={"spec": spec, "run_id": spec.run_id, "history": rows})
        with nullcontext() if fits else pytest.raises(VitinitError, match="refusing to write"):
            assert from_bytes(to_bytes(changed)).last.score == value


# --- writing ---


def test_a_written_record_is_a_json_document_that_ends_in_its_digest(tmp_path):
    path = Store(tmp_path).write(record())
    above, _, end = path.read_bytes().rpartition(b',\n "digest": ')
    assert end.decode() == f'"{hashlib.blake2b(above, digest_size=16).hexdigest()}"\n}}\n'
    assert json.loads(above + b"}") == json.loads(record().model_dump_json())
    assert Store(tmp_path).read("small").done == {RUN: record()}


def test_an_outcome_that_does_not_validate_is_not_written(tmp_path):
    for wrong in (record(run_id="0" * 16), record(seconds=-1.0), record(study="../../elsewhere"), record(history=[])):
        with pytest.raises(VitinitError, match="refusing to write"):
            Store(tmp_path / "results").write(wrong)
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_disk_is_one_line_and_changes_nothing(study, monkeypatch):
    before, real = {path: path.read_bytes() for path in study.iterdir()}, Path.open

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def full(path, mode, **options):
        """A file on a disk that has just become full."""
        return real(Path("/dev/full"), "wb", buffering=0) if mode == "xb" else real(path, mode, **options)

    for place, name, fault, number in (
        (os, "fsync", fail, errno.EIO),
        (Path, "replace", fail, errno.EIO),
        (Path, "open", full, errno.ENOSPC),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, fault)
            with pytest.raises(VitinitError) as info:
                Store(study.parent).write(record(1, seconds=1.0))
        assert str(info.value) == f"cannot write {study / f'{record(1).run_id}.json'}: {os.strerror(number)}"
        assert {path: path.read_bytes() for path in study.iterdir()} == before


# --- several outcomes of one run ---


def test_done_wins_over_failed_over_skipped_and_what_is_damaged_counts_as_absent_and_is_kept(tmp_path):
    run, files, folder = record(), Store(tmp_path), tmp_path / "small"
    assert files.outcome("small", RUN) is None
    for outcome in (skipped(run), failed(run), run):
        files.write(outcome)
        assert files.outcome("small", RUN) == outcome
    assert [path.name for path in folder.iterdir()] == [f"{RUN}.json"]
    for outcome in (failed(run), skipped(run)):  # the data may be missing now on another machine
        files.write(outcome)
    for contents in (files.read("small"), load([tmp_path]).contents):
        assert (contents.done, contents.failed, contents.skipped) == ({RUN: run}, {}, {})
    (folder / f"{RUN}.json").write_bytes(WHOLE[:-30])
    assert files.outcome("small", RUN) == failed(run)
    for contents in (files.read("small"), load([tmp_path]).contents):
        assert (contents.done, contents.failed.keys(), contents.skipped) == ({}, {RUN}, {})
    skip = folder / f"{RUN}.skipped.json"
    skip.write_bytes(b"damaged")
    for _ in range(2):
        files.remove("small", RUN, "skipped")
    assert [kept.read_bytes() for kept in folder.glob(f"{skip.name}.invalid-*")] == [b"damaged"]
    assert not skip.exists()


# --- what tables need of a grid ---


def test_the_layout_is_that_of_the_last_grid_and_loses_no_label(tmp_path, vitinit):
    files, path = Store(tmp_path), tmp_path / "small" / "LAYOUT"
    assert files.layout("small") == Layout()
    first = Layout(rows=["B", "A [é]"], contrasts=[("A [é]", "B")], columns=["digits"], title="One")
    files.write_layout("small", first)
    assert files.layout("small") == first
    files.write_layout("small", Layout(rows=["C", "B"], columns=["digits[9]"], title="Two"))
    both = Layout(rows=["C", "B", "A [é]"], contrasts=first.contrasts, columns=["digits[9]"], title="Two")
    assert files.layout("small") == both, "a label that the grid has no more may have records"
    assert files.studies() == [], "it is no record"
    test = {"test": "sign_flip"}
    assert Layout().before(Layout(contrasts=first.contrasts, analysis=test)).analysis.test == "sign_flip"
    renamed = {"name": "now", "weights": {"B": 2, "A [é]": -2}}
    assert len(Layout(contrasts=[renamed]).before(first).contrasts) == 1
    before = path.stat().st_ino
    files.write_layout("small", both)
    assert path.stat().st_ino == before, "nothing to put down"
    path.write_bytes(path.read_bytes().replace(b"Two", b"Won"))
    code, out, _ = vitinit(f"store check {tmp_path}")
    assert (code, out.splitlines()) == (
        1,
        [
            f"invalid: {path}: does not hold the rows and contrasts of a grid: {CHANGED}",
            f"0 valid records, 1 invalid file in {tmp_path}",
        ],
    )
    for content in (b"[]", b'{"rows": ["A", 1]}', b'{"title": "", "title": "A"}', b"{", b"\xff"):
        path.write_bytes(content)
        with pytest.raises(VitinitError, match="small/LAYOUT: does not hold the rows and contrasts of a grid"):
            files.layout("small")
        files.write_layout("small", Layout(rows=["A"]))
        assert files.layout("small").rows == ["A"]


def test_of_writers_at_the_same_time_each_keeps_its_rows(tmp_path):
    def write(name):
        for number in range(30):
            Store(tmp_path).write_layout("small", Layout(rows=[f"{name}{number}"]))

    writers = [multiprocessing.get_context("fork").Process(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(Store(tmp_path).layout("small").rows) == 60


def test_records_of_elsewhere_come_home_unless_their_code_or_numbers_are_others(study, tmp_path, vitinit, monkeypatch):
    monkeypatch.setattr("vitinit.runners.basics.environment.source_of", {"home": "known"}.get)
    known = {"commit": "home", "source": "known"}
    there, wrong, new = Store(tmp_path / "there"), record(1, weights="0" * 64), record(2, environment=known)
    older = record(4, environment={**known, "source": "by the rule of then", "dirty": False})
    for run in (wrong, new, older, record(3, environment={**known, "source": "changed"})):
        there.write(run)
    os.mkfifo(there.root / "small" / f"{RUN}.json")
    assert vitinit(f"store import {there.root} --results {study.parent}")[1].splitlines() == [
        "small: 2 runs taken, 1 here already",
        "small: 1 run with another hash of the code than the commit has",
        f"left: {there.root}/small/{RUN}.json: cannot be read: no regular file of at most 67,108,864 bytes",
        f"left: run {wrong.run_id} of small is here with 1 other value",
        f"left: run {record(3).run_id} of small: its code is no commit of this repository",
    ]
    assert Store(study.parent).read("small").done == {run.run_id: run for run in (record(1), new, older)}


# --- export: a row a run and a row an epoch, beside the records themselves ---


EVIL = '\x1b]0;owned\x07\x1b[2J[red]x[/red]\r\n\u202etxt, "quoted" \\begin{x} %&_'


def test_tables_read_back_the_same_with_failed_and_skipped_runs(study, tmp_path, vitinit):
    files, whole, out = Store(study.parent), record(row=EVIL), tmp_path / "out"
    files.write(whole)
    files.write(failed(record(2), f"first, line\n{EVIL}", execution={"device": "cuda"}, environment={"gpu": "H100"}))
    files.write(skipped(record(3), "no images; put 'a', \"b\" into c"))
    code, printed, _ = vitinit(f"store export --results {study.parent} --out {out}")
    said = [f"{out}/runs.csv: 4 rows", f"{out}/epochs.csv: 11 rows"]
    assert (code, printed.splitlines()) == (0, said)
    rows = pd.read_csv(out / "runs.csv", dtype=str, keep_default_na=False).set_index("run_id").to_dict("index")
    for run in (whole, record(1)):
        row, spec, (epoch, best) = rows[run.run_id], run.spec, run.best
        said = {"row": run.row, "status": "done", "reason": "", "dataset.name": spec.dataset.name}
        said |= {"execution.device": "cpu", "environment.commit": run.environment["commit"]}
        assert said.items() <= row.items()
        numbers = {"top1": run.score, "best_top1": best, "best_epoch": epoch, "seconds": run.seconds}
        numbers["recipe.lr"] = spec.recipe.lr
        assert {name: float(row[name]) for name in numbers} == numbers
        assert json.loads(row["recipe.betas"]) == list(spec.recipe.betas)
    failure = {"status": "failed", "reason": f"RuntimeError: first, line\n{EVIL}", "top1": ""}
    failure |= {"execution.device": "cuda", "environment.gpu": "H100"}
    assert failure.items() <= rows[record(2).run_id].items()
    assert {"status": "skipped", "reason": "no images; put 'a', \"b\" into c"}.items() <= rows[record(3).run_id].items()
    epochs = pd.read_csv(out / "epochs.csv").set_index("run_id").loc[whole.run_id]
    assert list(zip(epochs["epoch"], epochs["test_top1"], strict=True)) == list(whole.evaluated.items())


# --- attention maps beside records: written, read and checked ---


MAPPED = record(1, weights="0" * 64)
MODEL, LAST = MAPPED.spec.model, MAPPED.spec.recipe.epochs
SHAPE = (2, MODEL.depth, MODEL.heads, MODEL.grid**2, MODEL.grid**2)
DICE = np.random.default_rng(0)
MAPS = AttentionMaps(
    (0, LAST),
    DICE.dirichlet(np.ones(SHAPE[-1]), size=SHAPE[:-1]).astype(np.float16),
    DICE.normal(size=(*SHAPE[:2], 2, 5, 5)).astype(np.float32),
    64,
    "0" * 64,
)
NPZ = maps_to_bytes(MAPS)


def put(root, content, run_id=MAPPED.run_id):
    path = kept_path(root, "small", run_id, "maps")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def packed():
    """A small file that would take much memory."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, maps=np.zeros(10**7), epochs=[0, LAST], grams=0, images=64, weights="")
    return buffer.getvalue()


def test_other_maps_or_weights_than_the_run_kept_are_named(tmp_path, vitinit):
    run = MAPPED.model_copy(update={"files": {"maps": sha256(NPZ).hexdigest(), "weights": sha256(b"its").hexdigest()}})
    Store(tmp_path).write(run)
    path, weights = put(tmp_path, NPZ), kept_path(tmp_path, "small", run.run_id, "weights")
    weights.parent.mkdir()
    weights.write_bytes(b"its")
    assert vitinit(f"store check {tmp_path}")[0] == 0
    weights.write_bytes(b"others")
    put(tmp_path, maps_to_bytes(replace(MAPS, maps_ELHNN=np.full_like(MAPS.maps_ELHNN, 0.5))))
    lines = vitinit(f"store check {tmp_path}")[1].splitlines()
    assert [line for line in lines if "other bytes than those that the run kept" in line] == [
        f"invalid: {path}: no attention maps, or damaged: other bytes than those that the run kept",
        f"invalid: {weights}: other bytes than those that the run kept",
    ]
    with weights.open("wb") as file:
        file.truncate(2**27)
    tracemalloc.start()
    vitinit(f"store check {tmp_path}")
    assert tracemalloc.get_traced_memory()[1] < 2**26, "weights are read block by block"
    tracemalloc.stop()
    weights.unlink()
    weights.symlink_to("/dev/zero")
    assert f"{weights}: cannot be read: no regular file" in vitinit(f"store check {tmp_path}")[1]


def test_what_is_read_is_what_was_written(tmp_path):
    assert read_maps(tmp_path, MAPPED) is None
    put(tmp_path, NPZ)
    found = read_maps(tmp_path, MAPPED)
    assert (found.epochs, found.images, found.weights, maps_to_bytes(found)) == ((0, LAST), 64, "0" * 64, NPZ)
    np.testing.assert_array_equal(found.maps_ELHNN, MAPS.maps_ELHNN)
    np.testing.assert_array_equal(found.grams_ELBnn, MAPS.grams_ELBnn)


def test_what_are_no_maps_of_the_model_is_one_line(tmp_path):
    of, flipped = "no attention maps and Gram matrices of " + " x ".join(map(str, SHAPE)), bytearray(NPZ)
    flipped[20_000] ^= 1
    for content, why in (
        (flipped, "no attention maps, or damaged: Bad CRC-32"),
        (NPZ[:5000], "no attention maps, or damaged: File is not a zip file"),
        (maps_to_bytes(replace(MAPS, maps_ELHNN=MAPS.maps_ELHNN[..., :9])), of),
        (maps_to_bytes(replace(MAPS, grams_ELBnn=MAPS.grams_ELBnn[:, :1])), of),
        (maps_to_bytes(replace(MAPS, maps_ELHNN=MAPS.maps_ELHNN.astype("U5"))), of),
        (maps_to_bytes(replace(MAPS, epochs=(0, 1))), of),
        (maps_to_bytes(replace(MAPS, epochs=(1, LAST))), of),
        (packed(), "no attention maps, or damaged: packed"),
    ):
        path = put(tmp_path, content)
        with pytest.raises(VitinitError) as refused:
            read_maps(tmp_path, MAPPED)
        assert str(refused.value).startswith(f"{path}: {why}")


def test_check_counts_maps_and_names_those_without_their_record(tmp_path, vitinit):
    Store(tmp_path).write(MAPPED)
    put(tmp_path, NPZ)
    stray = put(tmp_path, NPZ, "0" * 16)

    def check():
        return vitinit(f"store check {tmp_path}")[1].splitlines()[:2]

    assert check() == ["small: 1 done, 1 with attention maps", f"invalid: {stray}: attention maps without a record"]
    (tmp_path / "small" / "unfinished" / stray.stem).mkdir(parents=True)
    path = put(tmp_path, maps_to_bytes(replace(MAPS, weights="1" * 64)))
    said = f"invalid: {path}: of another run than the record: other weights"
    assert check() == ["small: 1 done, 1 unfinished", said], "the record of the stray is to come"
