"""Procedural warm-up: strings against a stack in Python, a step against AdamW's formula, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_models import VIT, differing, generator, model, silent, state

from vitinit.initializers import registry
from vitinit.initializers.methods import procedural
from vitinit.initializers.registry import Resources

FEW = {"steps": 1, "strings": 8, "batch_size": 8, "kinds": 3}


def trained(m: Any, seed: int = 0, resources: Resources | None = None, **params: Any) -> Any:
    method = registry.build("procedural", {**FEW, **params})
    method.apply_with(m, generator(seed), silent, resources or Resources())
    return m


@pytest.mark.parametrize("length", [16, 15])
def test_brackets_close_in_the_reverse_order_of_their_opening(length: int) -> None:
    kinds, count = 3, 400
    deepest = 0
    for string in procedural.brackets(count, length, kinds, 0.6, generator(0)).tolist():
        stack: list[int] = []
        for symbol in string:
            if symbol < kinds:
                stack.append(symbol)
                deepest = max(deepest, len(stack))
            else:
                assert stack.pop() == symbol - kinds
        assert len(stack) == length % 2
    assert deepest > 4


def test_where_one_may_open_it_opens_with_its_probability() -> None:
    strings = procedural.brackets(20_000, 16, 2, 0.6, generator(1))
    assert (strings[:, 0] < 2).all()
    assert (strings[:, 1] < 2).float().mean() == pytest.approx(0.6, abs=0.02)
    assert strings[:, 0].float().mean() == pytest.approx(0.5, abs=0.02)


def test_the_first_step_is_adamws_and_of_blocks_alone() -> None:
    m = model(VIT)
    before = state(m)
    trained(m, lr=1e-3, weight_decay=0.5)
    after = state(m)
    assert {name.split(".")[0] for name in differing(before, after)} == {"blocks"}
    for name, value in before.items():
        if name.startswith("blocks"):
            # AdamW's first step is lr sign(gradient); without a gradient there is decay alone
            step = (after[name] - value * (1 - 1e-3 * 0.5)).abs()
            assert torch.isclose(step, torch.tensor(1e-3), rtol=0.02).float().mean() > (0.6 if "bias" in name else 0.95)
            assert step.max() < 1.02e-3


def test_hidden_brackets_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, cross_entropy = [], procedural.functional.cross_entropy

    def kept(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        losses.append(cross_entropy(logits, target))
        return losses[-1]

    monkeypatch.setattr(procedural.functional, "cross_entropy", kept)
    trained(
        model(VIT, patch_size=8, width=16, depth=1, heads=2), steps=300, strings=500, batch_size=16, kinds=2, lr=1e-2
    )
    first, last = (torch.stack(part).mean() for part in (losses[:5], losses[-20:]))
    assert first > 0.69, "ln 2: to guess among the closing brackets"
    assert last < 0.4


def test_what_is_kept_depends_on_start_and_seed_and_gives_the_same_bits() -> None:
    kept: dict[Any, tuple[torch.Tensor, ...]] = {}

    def remember(inputs: Any, solve: Any) -> tuple[torch.Tensor, ...]:
        return kept[inputs] if inputs in kept else kept.setdefault(inputs, solve())

    resources = Resources(remember=remember)
    first, again = (trained(model(VIT), resources=resources) for _ in range(2))
    assert len(kept) == 1
    assert not differing(state(first), state(again))
    trained(model(VIT), seed=1, resources=resources)
    trained(model(VIT, seed=1), resources=resources)
    assert len(kept) == 3


def test_a_step_without_a_hidden_bracket_changes_nothing() -> None:
    m = model(VIT, patch_size=16)
    before = state(m)
    trained(m, hidden=1e-9)
    assert not differing(before, state(m))
