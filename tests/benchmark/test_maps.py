"""Attention maps beside records: written, read and checked."""

import io
import tracemalloc
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from stored_records import record
from typer.testing import CliRunner

from vitinit.benchmark.records.store import AttentionMaps, Store, kept_path, maps_to_bytes, read_maps
from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli.records import store_app

RUN = record(1, weights="0" * 64)
MODEL, LAST = RUN.spec.model, RUN.spec.recipe.epochs
SHAPE = (2, MODEL.depth, MODEL.heads, MODEL.grid**2, MODEL.grid**2)
DICE = np.random.default_rng(0)
MAPS = AttentionMaps(
    (0, LAST),
    DICE.dirichlet(np.ones(SHAPE[-1]), size=SHAPE[:-1]).astype(np.float16),
    DICE.normal(size=(*SHAPE[:2], 2, 5, 5)).astype(np.float32),
    64,
    "0" * 64,
)
WHOLE = maps_to_bytes(MAPS)


def put(root, content, run_id=RUN.run_id):
    path = kept_path(root, "small", run_id, "maps")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def packed():
    """A small file that would take much memory."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, maps=np.zeros(10**7), epochs=[0, LAST], grams=0, images=64, weights="")
    return buffer.getvalue()


def test_other_maps_or_weights_than_the_run_kept_are_named(tmp_path):
    run = RUN.model_copy(update={"files": {"maps": sha256(WHOLE).hexdigest(), "weights": sha256(b"its").hexdigest()}})
    Store(tmp_path).write(run)
    path, weights = put(tmp_path, WHOLE), kept_path(tmp_path, "small", run.run_id, "weights")
    weights.parent.mkdir()
    weights.write_bytes(b"its")
    check = ["check", str(tmp_path)]
    assert CliRunner().invoke(store_app, check).exit_code == 0
    weights.write_bytes(b"others")
    put(tmp_path, maps_to_bytes(replace(MAPS, maps_ELHNN=np.full_like(MAPS.maps_ELHNN, 0.5))))
    lines = CliRunner().invoke(store_app, check).output.splitlines()
    assert [line for line in lines if "other bytes than those that the run kept" in line] == [
        f"invalid: {path}: no attention maps, or damaged: other bytes than those that the run kept",
        f"invalid: {weights}: other bytes than those that the run kept",
    ]
    with weights.open("wb") as file:
        file.truncate(2**27)
    tracemalloc.start()
    CliRunner().invoke(store_app, check)
    assert tracemalloc.get_traced_memory()[1] < 2**26, "weights are read block by block"
    tracemalloc.stop()
    weights.unlink()
    weights.symlink_to("/dev/zero")
    assert f"{weights}: cannot be read: no regular file" in CliRunner().invoke(store_app, check).output


def test_what_is_read_is_what_was_written(tmp_path):
    assert read_maps(tmp_path, RUN) is None
    put(tmp_path, WHOLE)
    found = read_maps(tmp_path, RUN)
    assert (found.epochs, found.images, found.weights, maps_to_bytes(found)) == ((0, LAST), 64, "0" * 64, WHOLE)
    np.testing.assert_array_equal(found.maps_ELHNN, MAPS.maps_ELHNN)
    np.testing.assert_array_equal(found.grams_ELBnn, MAPS.grams_ELBnn)


def test_what_are_no_maps_of_the_model_is_one_line(tmp_path):
    of, flipped = "no attention maps and Gram matrices of " + " x ".join(map(str, SHAPE)), bytearray(WHOLE)
    flipped[20_000] ^= 1
    for content, why in (
        (flipped, "no attention maps, or damaged: Bad CRC-32"),
        (WHOLE[:5000], "no attention maps, or damaged: File is not a zip file"),
        (maps_to_bytes(replace(MAPS, maps_ELHNN=MAPS.maps_ELHNN[..., :9])), of),
        (maps_to_bytes(replace(MAPS, grams_ELBnn=MAPS.grams_ELBnn[:, :1])), of),
        (maps_to_bytes(replace(MAPS, maps_ELHNN=MAPS.maps_ELHNN.astype("U5"))), of),
        (maps_to_bytes(replace(MAPS, epochs=(0, 1))), of),
        (maps_to_bytes(replace(MAPS, epochs=(1, LAST))), of),
        (packed(), "no attention maps, or damaged: packed"),
    ):
        path = put(tmp_path, content)
        with pytest.raises(VitinitError) as refused:
            read_maps(tmp_path, RUN)
        assert str(refused.value).startswith(f"{path}: {why}")


def test_check_counts_maps_and_names_those_without_their_record(tmp_path):
    Store(tmp_path).write(RUN)
    put(tmp_path, WHOLE)
    stray = put(tmp_path, WHOLE, "0" * 16)

    def check():
        return CliRunner().invoke(store_app, ["check", str(tmp_path)]).output.splitlines()[:2]

    assert check() == ["small: 1 done, 1 with attention maps", f"invalid: {stray}: attention maps without a record"]
    (tmp_path / "small" / "unfinished" / stray.stem).mkdir(parents=True)
    path = put(tmp_path, maps_to_bytes(replace(MAPS, weights="1" * 64)))
    said = f"invalid: {path}: of another run than the record: other weights"
    assert check() == ["small: 1 done, 1 unfinished", said], "the record of the stray is to come"
