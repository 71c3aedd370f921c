"""Procedural warm-up: strings against a stack in Python, a step against AdamW's formula, and what stays."""

import pytest
import torch
from small_models import VIT, differing, generator, model, state

from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.methods import procedural
from vitinit.initializers.registry import Job

FEW = {"steps": 1, "strings": 8, "batch_size": 8, "kinds": 3}


@pytest.mark.parametrize("length", [16, 15])
def test_brackets_close_in_the_reverse_order_of_their_opening(length):
    kinds, count = 3, 400
    deepest = 0
    for string in procedural.brackets(count, length, kinds, 0.6, generator(0)).tolist():
        stack = []
        for symbol in string:
            if symbol < kinds:
                stack.append(symbol)
                deepest = max(deepest, len(stack))
            else:
                assert stack.pop() == symbol - kinds
        assert len(stack) == length % 2
    assert deepest > 4


def test_a_block_that_takes_more_than_tokens_is_refused():
    m = model(VIT)
    m.blocks[1].forward = lambda x, scale: x
    with pytest.raises(VitinitError, match="is in a block that does not take and return these"):
        registry.build("procedural", FEW).check(m)


def test_the_first_step_is_adamws_and_of_blocks_alone():
    m = model(VIT)
    before = state(m)
    registry.build("procedural", {**FEW, "lr": 1e-3, "weight_decay": 0.5}).apply(m, generator(), Job())
    after = state(m)
    assert {name.split(".")[0] for name in differing(before, after)} == {"blocks"}
    for name, value in before.items():
        if name.startswith("blocks"):
            # AdamW's first step is lr sign(gradient); without a gradient there is decay alone
            step = (after[name] - value * (1 - 1e-3 * 0.5)).abs()
            assert torch.isclose(step, torch.tensor(1e-3), rtol=0.02).float().mean() > (0.6 if "bias" in name else 0.95)
            assert step.max() < 1.02e-3
