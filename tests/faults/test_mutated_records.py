"""Records with wrong values under a digest that fits, from a seeded generator: validation alone finds every one."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sealing import sealed
from vitinit.benchmark.records.record import from_bytes
from vitinit.initializers.errors import VitinitError

pytestmark = pytest.mark.long

TRIED = 200 if os.environ.get("FAULTS") == "all" else 100
REFERENCE = sorted((Path(__file__).parents[2] / "results/reference/small").glob("*.json"))


def changed(body: dict[str, Any], dice: random.Random) -> bytes:
    del body["digest"]
    row = dice.choice(body["history"])
    wrong: list[Callable[[], object]] = [
        lambda: row.update(
            {
                dice.choice(("lr", "train_loss", "test_loss", "seconds")): dice.choice(
                    [float("nan"), float("inf"), "1", None, [], -1.0]
                )
            }
        ),
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
        lambda: body.update(study=dice.choice(["../small", ""])),
        lambda: body["environment"].update(load=float("nan")),
    ]
    dice.choice(wrong)()
    return sealed(body)


def test_every_wrong_value_is_found(tally: Callable[..., None]) -> None:
    dice, found = random.Random(20250101), 0
    for _ in range(TRIED):
        content = changed(json.loads(dice.choice(REFERENCE).read_bytes()), dice)
        with pytest.raises(VitinitError) as refused:
            from_bytes(content)
        found += str(refused.value).isprintable()
    tally("mutated record file", tried=TRIED, survived=found)
    assert found == TRIED
