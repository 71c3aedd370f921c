"""Schedules by name: every value of the learning rate against the formula; branches of a stable phase; resuming."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from tests.faults.harness import assert_same, setting, stopped_after
from tests.runners.small_run import spec
from vitinit.benchmark.files.atomic import write_atomically
from vitinit.benchmark.grids import grid
from vitinit.benchmark.grids.parts import resolve_recipe
from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.schedules import COSINE, SCHEDULES
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.stop import Stop, Stopped
from vitinit.runners.launching.execute import _turns
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.training.checkpoint import pack, read
from vitinit.runners.training.train import Training

EPOCHS, WARMUP, STEPS, LR, MIN, FIRST = 10, 2, 7, 0.01, 0.001, 1e-4
FORMULAS: list[tuple[Any, Callable[[float], float]]] = [
    ("cosine", lambda share: MIN + (LR - MIN) * (1 + math.cos(math.pi * share)) / 2),
    ("constant", lambda share: LR),
    ("linear", lambda share: LR + (MIN - LR) * share),
    ("polynomial", lambda share: MIN + (LR - MIN) * (1 - share) ** 2),
    ({"name": "polynomial", "power": 0.5}, lambda share: MIN + (LR - MIN) * math.sqrt(1 - share)),
    ({"name": "step", "every": 3, "factor": 0.5}, lambda share: LR * 0.5 ** math.floor(share * EPOCHS / 3 + 1e-9)),
    ("wsd", lambda share: MIN + (LR - MIN) * (1 - math.sqrt(max(0, (share - 0.8) / 0.2)))),
    (
        {"name": "wsd", "cooldown": 0.5, "shape": "linear"},
        lambda share: MIN + (LR - MIN) * (1 - max(0, (share - 0.5) / 0.5)),
    ),
    (
        {"name": "wsd", "cooldown": 0.3, "shape": "cosine"},
        lambda share: MIN + (LR - MIN) * (1 + math.cos(math.pi * max(0, (share - 0.7) / 0.3))) / 2,
    ),
]


def recipe(schedule: Any, **fields: Any) -> Recipe:
    settings = {"epochs": EPOCHS, "batch_size": 8, "lr": LR, "min_lr": MIN, "warmup_epochs": WARMUP}
    return resolve_recipe({"name": "small", **settings, "warmup_lr": FIRST, "schedule": schedule, **fields})


@pytest.mark.parametrize("per", ["step", "epoch"])
@pytest.mark.parametrize(("schedule", "after_warmup"), FORMULAS, ids=lambda each: "" if callable(each) else str(each))
def test_every_learning_rate_is_that_of_the_formula(
    schedule: Any, after_warmup: Callable[[float], float], per: str
) -> None:
    training = Training(nn.Linear(2, 2), recipe(schedule, schedule_per=per), STEPS, torch.device("cpu"))
    for epoch in range(EPOCHS):
        training.scheduler.step(epoch)
        for step in range(STEPS):
            training.scheduler.step_update(epoch * STEPS + step)
            epochs = epoch + step / STEPS if per == "step" else epoch
            share = epochs / EPOCHS
            expected = FIRST + (LR - FIRST) * epochs / WARMUP if epochs < WARMUP else after_warmup(share)
            for group in training.optimizer.param_groups:
                assert group["lr"] == pytest.approx(expected, rel=1e-9), (epoch, step)


def test_cosine_is_the_recipe_of_before_and_each_name_has_its_defaults_filled_in() -> None:
    plain = resolve_recipe({"name": "small"})
    assert recipe("cosine").schedule == plain.schedule == COSINE
    for name in SCHEDULES:
        named = recipe(name)
        assert Recipe.model_validate_json(named.model_dump_json()) == named
        assert named.schedule == recipe({"name": name}).schedule
    assert recipe({"name": "wsd", "cooldown": 0.2}) == recipe("wsd") != recipe({"name": "wsd", "cooldown": 0.3})


@pytest.fixture
def run(one_thread: None) -> Callable[[int], Cell]:
    def of(epochs: int, **fields: Any) -> Cell:
        named = {"epochs": epochs, "batch_size": 32, "min_lr": 1e-5, "warmup_epochs": 1, "schedule": "wsd"}
        named |= {"ema": 0.9, **fields}
        return Cell("row", spec(recipe=recipe(named.pop("schedule"), **named)))

    return of


def branched(where: Any, cell: Cell) -> list[str]:
    """Carry it out; what it says about where it begins."""
    said: list[str] = []
    end = carry_out(cell, where, Stop(), lambda event: said.append(event.resumed or event.trouble))
    assert isinstance(end, RunRecord)
    return [text for text in said if text]


@pytest.mark.long
def test_a_branch_is_bitwise_a_run_of_its_own(tmp_path: Path, run: Callable[..., Cell]) -> None:
    """Shortest first; the third stops twice, before and after the decay has begun. Sessions say who trained what."""
    lengths = [run(3), run(5), run(10)]
    together = setting(tmp_path / "together")
    apart = [setting(tmp_path / f"apart {cell.spec.recipe.epochs}") for cell in lengths]
    for cell, alone in zip(lengths, apart, strict=True):
        assert branched(alone, cell) == []
    assert branched(together, lengths[0]) == []
    assert branched(together, lengths[1]) == ["epoch 3, trained by another run of this spec"]
    said: list[str] = []
    stopped_after(6, lengths[2], together, lambda event: said.append(event.resumed))
    stopped_after(9, lengths[2], together, lambda event: said.append(event.resumed))
    assert [text for text in said if text] == ["epoch 5, trained by another run of this spec", "epoch 7, step 0"]
    assert branched(together, lengths[2]) == ["epoch 10, step 0"]
    for cell, alone in zip(lengths, apart, strict=True):
        assert_same(alone, together, cell)
    (kept,) = (together.root / together.study / "stable").glob("*/*")
    assert kept.name == "epoch-00000008.ckpt", "the last one that a longer run can begin from"


def test_killed_as_the_stable_phase_is_saved_it_ends_with_the_same_bits(
    tmp_path: Path, run: Callable[..., Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, whole, resumed = run(4), setting(tmp_path / "whole"), setting(tmp_path / "resumed")
    carry_out(cell, whole, Stop())

    def dying(*_: object) -> None:
        raise Stopped("killed")

    with monkeypatch.context() as patch:
        patch.setattr("vitinit.runners.one_run.trunk.write_atomically", dying)
        assert carry_out(cell, resumed, Stop()).status == "stopped"
    carry_out(cell, resumed, Stop())
    assert_same(whole, resumed, cell)


@pytest.mark.long
def test_what_is_not_the_same_training_is_no_trunk(tmp_path: Path, run: Callable[..., Cell]) -> None:
    """Another seed, learning rate or measurement, other images or code; a damaged file is passed over, with a word."""
    where = setting(tmp_path)
    branched(where, run(3))
    for other in (run(5, lr=0.02), Cell("row", run(5).spec.model_copy(update={"seed": 1}))):
        assert branched(where, other) == []
    assert branched(replace(where, probes=False), run(6)) == []
    assert branched(replace(where, keep_maps=True), run(11)) == []
    assert branched(replace(where, reuse_solutions=False), run(7)) == [], "a repetition trains all of it"
    assert branched(replace(where, code={"source": "another"}), run(8)) == []
    (path,) = (where.root / where.study / "stable").glob(f"{run(3).spec.trunk_id}-*/epoch-00000006.ckpt")
    state = read(path)
    write_atomically(path, pack({**state, "checksum": "0" * 64}))
    assert branched(replace(where, code={"source": "another"}), run(9)) == []
    for each in path.parent.iterdir():
        each.write_bytes(b"damaged")
    (said,) = branched(where, run(10))
    assert "is passed over" in said


def test_cooldowns_of_a_grid_are_runs_of_their_own_the_shorter_ones_first(tmp_path: Path) -> None:
    block = {
        "datasets": [{"name": "digits", "train_size": 100}],
        "model": {"preset": "vit_micro", "image_size": 8, "patch_size": 2, "width": 16, "depth": 1},
        "seeds": [0, 1],
    }
    rows = {"Trunc normal": {"base": "trunc_normal"}, "Mimetic": {"base": "trunc_normal", "method": "mimetic"}}

    def load(**of: Any) -> list[Cell]:
        content = {"title": "t", "rows": rows, "blocks": [{**block, "recipe": {"name": "small", **of}}]}
        path = tmp_path / "lengths.yaml"
        path.write_text(yaml.safe_dump(content))
        return grid.load(str(path)).cells

    cells = load(schedule="wsd", cooldowns=[40, 10, 20])
    alone = [load(schedule="wsd", epochs=epochs) for epochs in (10, 20, 40)]
    assert {cell.run_id for cell in cells} == {cell.run_id for each in alone for cell in each}
    assert {cell.column for cell in cells} == {f"digits[100] (epochs {epochs})" for epochs in (10, 20, 40)}
    turns = _turns(cells)
    assert [turns[cell.run_id] for cell in cells] == [{10: 0, 20: 1, 40: 2}[cell.spec.recipe.epochs] for cell in cells]
    assert set(_turns(load(epochs=10)).values()) == {0}
    decays = [
        {"name": "wsd", "cooldown": share, "shape": shape} for share in (0.2, 0.5) for shape in ("linear", "cosine")
    ]
    assert len({load(schedule=decay)[0].spec.trunk_id for decay in decays}) == 1, (
        "no decay changes what comes before it"
    )
    for wrong, message in (
        ({"schedule": "wsd", "cooldowns": [10, 10]}, "is there twice"),
        ({"schedule": "wsd", "cooldowns": []}, "a list of numbers of epochs"),
        ({"schedule": "wsd", "cooldowns": [10], "epochs": 3}, "leave out epochs"),
        ({"cooldowns": [10, 20]}, "need schedule: wsd"),
    ):
        with pytest.raises(VitinitError, match=message):
            load(**wrong)
