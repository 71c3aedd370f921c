"""Damaged record files, from a seeded generator: every one is noticed, named and kept, and no neighbour is lost."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sealing import sealed
from vitinit.benchmark.records.record import Outcome, from_bytes, to_bytes
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.spec import RunSpec

pytestmark = pytest.mark.long

TRIED = 200 if os.environ.get("FAULTS") == "all" else 100
PER_STUDY = 10
REFERENCE = [
    from_bytes(path.read_bytes())
    for path in sorted((Path(__file__).parents[2] / "results/reference/small").glob("*.json"))
]


def flipped(content: bytes, dice: random.Random) -> bytes:
    """One to three bits."""
    changed = bytearray(content)
    for position in dice.sample(range(len(content)), dice.randint(1, 3)):
        changed[position] ^= 1 << dice.randrange(8)
    return bytes(changed)


def digit(content: bytes, dice: random.Random) -> bytes:
    """One digit becomes another: valid JSON, and mostly a plausible number."""
    position = dice.choice([index for index, byte in enumerate(content) if byte in b"0123456789"])
    other = dice.choice([byte for byte in b"0123456789" if byte != content[position]])
    return content[:position] + bytes([other]) + content[position + 1 :]


def foreign(content: bytes, dice: random.Random) -> bytes:
    others: tuple[Any, ...] = ({}, [], None, 1, "text", {"hello": "world"}, [json.loads(content)], {"run_id": "x"})
    return json.dumps(dice.choice(others)).encode()


def resealed(content: bytes, dice: random.Random) -> bytes:
    """Wrong values under a digest computed anew: validation alone has to find them."""
    body = json.loads(content)
    del body["digest"]
    row = dice.choice(body["history"])
    wrong: list[Callable[[], object]] = [
        lambda: row.update({dice.choice(sorted(row)): dice.choice([float("nan"), float("inf"), "1", None, [], -1.0])}),
        lambda: row.update(test_top1=dice.uniform(100.01, 1e9)),
        lambda: row.update(test_top1=row["test_top1"] / 2 + dice.uniform(0.001, 0.009)),
        lambda: row.update(epoch=row["epoch"] + dice.choice([-1, 1])),
        lambda: body["history"].pop(dice.randrange(len(body["history"]))),
        lambda: body.update(schema_version=dice.choice([0, 2, 99, "1", None, 1.5])),
        lambda: body.update({dice.choice(["seconds", "parameters"]): dice.choice([-3, "12", None, {}, float("nan")])}),
        lambda: body.pop(dice.choice(["spec", "history", "status", "run_id", "study", "schema_version", "init"])),
        lambda: body["spec"].update(seed=body["spec"]["seed"] + 1),
        lambda: body["spec"]["recipe"].update(lr=body["spec"]["recipe"]["lr"] * 2),
        lambda: body.update(run_id=f"{dice.getrandbits(64):016x}"),
        lambda: body.update(study=dice.choice(["other", "../small", ""])),
        lambda: body["environment"].update(load=float("nan")),
    ]
    dice.choice(wrong)()
    return sealed(body)


def swapped(content: bytes, dice: random.Random) -> bytes:
    """A sound record of another run, under this one's name."""
    other = next(o for o in dice.sample(REFERENCE, len(REFERENCE)) if o.run_id.encode() not in content)
    return to_bytes(other)


MUTATIONS = (flipped, digit, foreign, resealed, swapped)


def record(number: int) -> Outcome:
    """A record of its own for every number."""
    origin = REFERENCE[number % len(REFERENCE)]
    spec = RunSpec.model_validate(origin.spec.model_dump() | {"seed": 1_000 + number})
    return origin.model_copy(update={"spec": spec, "run_id": spec.run_id})


def test_every_mutated_record_is_detected_and_kept_and_no_neighbour_is_lost(
    tmp_path: Path, tally: Callable[..., None]
) -> None:
    dice, counts = random.Random(20250101), Counter[str]()
    for study_number in range(TRIED // PER_STUDY):
        files = Store(tmp_path / str(study_number))
        records = [record(study_number * 2 * PER_STUDY + index) for index in range(2 * PER_STUDY)]
        damaged, neighbours = records[:PER_STUDY], records[PER_STUDY:]
        content: dict[Path, bytes] = {}
        kind: dict[Path, str] = {}
        for outcome in records:
            path = files.write(outcome)
            content[path] = path.read_bytes()
        for index, outcome in enumerate(damaged):
            path = files._path(outcome.study, outcome.run_id)
            mutate = MUTATIONS[(study_number * PER_STUDY + index) % len(MUTATIONS)]
            changed = mutate(content[path], dice)
            assert changed != content[path], mutate
            path.write_bytes(changed)
            content[path], kind[path] = changed, mutate.__name__

        found = files.read("small")  # never raises
        expected = {outcome.run_id: outcome for outcome in neighbours}
        for path, name in kind.items():
            counts["tried"] += 1
            lines = [line for line in found.problems if line.startswith(f"{path}: ")]
            noticed = len(lines) == 1 and lines[0].isprintable() and path.stem not in found.done
            counts["detected"] += noticed
            assert noticed, (name, path, lines)
        assert len(found.problems) == PER_STUDY
        counts["lost"] += len(expected.keys() - found.done.keys())
        assert found.done == expected
        assert {path: path.read_bytes() for path in content} == content  # reading changes nothing

        for outcome in damaged:
            path = files.write(outcome)
            (kept,) = path.parent.glob(f"{path.name}.invalid-*")
            counts["lost"] += kept.read_bytes() != content[path]
            assert kept.read_bytes() == content[path], kind[path]
        again = files.read("small")
        assert (again.problems, len(again.done)) == ([], 2 * PER_STUDY)
    tally("mutated record file", tried=counts["tried"], survived=counts["detected"] - counts["lost"])
    assert (counts["tried"], counts["detected"], counts["lost"]) == (TRIED, TRIED, 0)
