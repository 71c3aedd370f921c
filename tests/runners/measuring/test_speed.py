"""What is measured of this machine: how slow a precision is, and the hours of `vitinit plan --estimate`."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitinit.benchmark.grids.parts import resolve_recipe
from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.initializers.errors import VitinitError
from vitinit.runners.basics.environment import processor
from vitinit.runners.cli.run import _check_that_it_compiles
from vitinit.runners.measuring import step

VIT = ViT(image_size=32, patch_size=4, width=48, depth=3, heads=4, mlp_ratio=3)
TOKEN = VIT.model_copy(update={"position": "learned", "pool": "token"})
CONVIT = resolve_model({"preset": "convit_micro", "image_size": 32, "patch_size": 4})
CONVMIXER = resolve_model({"preset": "convmixer_micro", "image_size": 32, "patch_size": 4, "kernel_size": 5})


@pytest.mark.parametrize(("spec", "exact"), [(VIT, True), (TOKEN, True), (CONVIT, False), (CONVMIXER, True)])
def test_operations_are_those_that_torch_counts(spec, exact):
    model = build_model(spec, 10)
    # attention as plain products: torch 2.14, the last for Python 3.10, does not count those of the fused kernel
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        loss = model.eval()(torch.zeros(1, 3, 32, 32)).sum()
    forward = counter.get_total_flops()
    # of ConViT, positions too are multiplied by values, and that once for all images
    assert spec.forward_operations(10) == pytest.approx(forward, rel=1e-12 if exact else 0.1)
    if spec is CONVMIXER:
        return  # torch counts the gradients of depthwise filters as those of filters that see every channel
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    # the gradient of the images is not asked for; `images_seen` counts a step as three forward passes
    assert 3 * spec.forward_operations(10) == pytest.approx(forward + counter.get_total_flops(), rel=0.1)


def test_what_no_record_tells_is_measured_now_and_turned_into_hours(here, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(
        'title: "mine"\nrows: {Kaiming uniform: {base: kaiming_uniform}}\nblocks:\n'
        "  - datasets: [cifar100]\n    model: {preset: vit_micro, image_size: 32, patch_size: 8}\n"
        "    recipe: {name: small, epochs: 700}\n    seeds: [0, 1]\n"
    )
    code, output = here("plan", "mine.yaml", "--estimate", "--device", "cpu")
    assert code == 0, output
    assert "measured now" in output
    assert f"hours, one run at a time, as measured on {processor()[0]}" in output
    monkeypatch.setattr(step, "seconds_per_image", lambda model, recipe, device: 1e-3)
    output = here("plan", "mine.yaml", "--estimate", "--device", "cpu")[1]
    # 700 epochs of 50,000 training images, and of 10,000 test images in a third of the time, for two seeds
    assert f"{2 * 700 * (50_000 + 10_000 / 3) * 1e-3 / 3600:.2f} hours" in output


def test_a_few_steps_are_timed_after_two_that_warm_up(monkeypatch):
    """By a clock that goes on by 0.3 seconds whenever it is read: six steps, of which the last four took 1.2 s."""
    clock = itertools.count()
    monkeypatch.setattr(step, "time", SimpleNamespace(perf_counter=lambda: 0.3 * next(clock)))
    took = step.seconds_per_image(VIT, resolve_recipe({"name": "small", "batch_size": 4}), torch.device("cpu"))
    assert took == pytest.approx(0.3 / 4)
    assert next(clock) == 6


def test_without_a_compiler_nothing_is_compiled(tmp_path, monkeypatch):
    """torch takes g++ or what CXX says, and no other."""
    compiler = tmp_path / "bin/clang++"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent))
    monkeypatch.delenv("CXX", raising=False)
    why = "torch.compile needs a C++ compiler on a CPU, and 'g++' is not on the PATH"
    for variable, says in ((None, f"--compile: {why}"), ("g++ 'not closed", "not closed")):
        if variable:
            monkeypatch.setenv("CXX", variable)
        with pytest.raises(VitinitError, match=re.escape(says)):
            _check_that_it_compiles("cpu", False, profile=None)
    monkeypatch.setenv("CXX", "clang++ -v")
    _check_that_it_compiles("cpu", False, profile=None)
