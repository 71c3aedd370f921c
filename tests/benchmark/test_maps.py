"""Attention maps beside records: written, read, checked, put aside with their record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stored_records import record
from typer.testing import CliRunner

from vitinit.benchmark.records.maps import AttentionMaps, maps_to_bytes, read_maps
from vitinit.benchmark.records.store import Store, maps_path
from vitinit.initializers.errors import VitinitError
from vitinit.runners.cli.store import store_app

RUN = record(1).model_copy(update={"weights": "0" * 64})


def some_maps(weights: str = "0" * 64, tokens: int | None = None) -> AttentionMaps:
    model = RUN.spec.model
    tokens = tokens or model.grid**2
    shares = np.random.default_rng(0).dirichlet(np.ones(tokens), size=(2, model.depth, model.heads, tokens))
    grams = np.random.default_rng(1).normal(size=(2, model.depth, 2, 5, 5)).astype(np.float32)
    return AttentionMaps((0, RUN.spec.recipe.epochs), shares.astype(np.float16), grams, 64, weights)


def put(root: Path, content: bytes, run_id: str = RUN.run_id) -> Path:
    path = maps_path(root, "small", run_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def check(root: Path) -> tuple[int, str]:
    result = CliRunner().invoke(store_app, ["check", str(root)])
    return result.exit_code, result.output


def test_what_is_read_is_what_was_written_and_the_bytes_are_stable(tmp_path: Path) -> None:
    assert read_maps(tmp_path, RUN) is None
    maps = some_maps()
    assert maps_to_bytes(maps) == maps_to_bytes(some_maps())
    put(tmp_path, maps_to_bytes(maps))
    found = read_maps(tmp_path, RUN)
    np.testing.assert_array_equal(found.maps_ELHNN, maps.maps_ELHNN)
    np.testing.assert_array_equal(found.grams_ELBnn, maps.grams_ELBnn)
    assert found.epochs == maps.epochs
    assert (found.images, found.weights, found.after_LHNN.dtype) == (64, "0" * 64, np.float16)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    whole = maps_to_bytes(some_maps())
    for position in (0, 30, 500, 20_000, -40):
        content = bytearray(whole)
        content[position] ^= 1
        put(tmp_path, bytes(content))
        try:
            found = read_maps(tmp_path, RUN)
        except VitinitError:
            continue
        assert maps_to_bytes(found) == whole, "a field of the zip that no reader looks at"


def test_what_are_no_maps_of_the_model_is_one_line(tmp_path: Path) -> None:
    no_grams = replace(some_maps(), grams_ELBnn=np.zeros((2, 1), np.float32))
    for content, why in (
        (b"", "no attention maps"),
        (b"no zip", "no attention maps"),
        (maps_to_bytes(some_maps())[:5000], "no attention maps"),
        (maps_to_bytes(some_maps(tokens=9)), "no attention maps"),
        (maps_to_bytes(replace(some_maps(), epochs=(0, 1))), "attention maps of epochs [0, 1], not of 0 to"),
        (maps_to_bytes(no_grams), "no attention maps"),
    ):
        path = put(tmp_path, content)
        with pytest.raises(VitinitError) as refused:
            read_maps(tmp_path, RUN)
        assert str(refused.value).startswith(f"{path}: {why}")


def test_check_counts_maps_and_names_those_without_their_record(tmp_path: Path) -> None:
    Store(tmp_path).write(RUN)
    put(tmp_path, maps_to_bytes(some_maps()))
    code, output = check(tmp_path)
    assert (code, "1 with attention maps" in output) == (0, True), output
    stray = put(tmp_path, maps_to_bytes(some_maps()), "0" * 16)
    assert f"invalid: {stray}: attention maps without a record" in check(tmp_path)[1]
    (tmp_path / "small" / "unfinished" / stray.stem).mkdir(parents=True)
    assert check(tmp_path)[0] == 0, "their record is to come"
    path = put(tmp_path, maps_to_bytes(some_maps("1" * 64)))
    code, output = check(tmp_path)
    assert (code, f"invalid: {path}: of another run than the record" in output) == (1, True), output
