"""Training through torch.compile, on a CPU: numbers, resuming, and what it refuses."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.faults.harness import assert_same, cell_of, setting, stopped_after
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.environment import lacks_compiler
from vitinit.runners.basics.setting import Execution, Stop
from vitinit.runners.one_run.carry_out import carry_out
from vitinit.runners.training.train import compiled

needs_compiler = pytest.mark.skipif(bool(lacks_compiler("cpu")), reason="no compiler here: apt-get install g++")
COMPILED = Execution("cpu", 1, "inline", compiled=True)


@pytest.mark.long
@needs_compiler
@pytest.mark.usefixtures("one_thread")
def test_twenty_steps_agree_with_eager_ones_and_a_resumed_run_is_bitwise_the_same(tmp_path):
    """With dropout and augmentation."""
    cell = cell_of("dropout", tmp_path, epochs=3)
    eager, whole, stopped = (
        setting(tmp_path / str(number), execution=replace(COMPILED, compiled=number > 0)) for number in range(3)
    )
    stopped_after(2, cell, stopped)
    for where in (eager, whole, stopped):
        carry_out(cell, where, Stop())
    assert_same(whole, stopped, cell)
    first, second = (torch.load(at.root / f"faults/weights/{cell.run_id}.pt") for at in (eager, whole))
    torch.testing.assert_close(first, second, rtol=0, atol=1e-5)
    assert any(not torch.equal(first[name], second[name]) for name in first), "nothing was compiled"


class Layer(nn.Linear):
    def forward(self, features):
        return super().forward(features)


def test_every_model_of_a_process_is_compiled_however_many_there_are(monkeypatch):
    """By dynamo, whose limit it is; code for a processor need not be made."""
    alive, compiler = [], torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, options, **how: compiler(model, backend="eager", **how))
    with torch._dynamo.config.patch(recompile_limit=1):
        for width in (2, 3):
            with compiled(Layer(width, width), True) as forward:
                alive.append(forward)
                forward(torch.ones(1, width))


class Branching(nn.Module):
    def forward(self, images):
        return images * 2 if images.sum() > 0 else images


def test_a_model_that_cannot_be_compiled_is_one_line_with_the_cause():
    with pytest.raises(VitinitError) as refused, compiled(Branching(), True) as forward:
        forward(torch.ones(2))
    assert str(refused.value).startswith("torch.compile cannot compile Branching: Data-dependent branching")
    assert "\n" not in str(refused.value)


@needs_compiler
def test_on_a_cpu_it_is_asked_for_twice(vitinit):
    once, twice = (vitinit("run smoke --dry-run --compile", how) for how in ("", "--device cpu"))
    assert (once[0], twice[0]) == (0, 0)
    assert "--compile is for a GPU and is off here" in once[1]
    assert "off here" not in twice[1]
