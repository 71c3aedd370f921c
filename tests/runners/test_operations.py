"""Operations of a model, by which runs are shared out; and what torch.compile needs."""

from __future__ import annotations

import re

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitinit.benchmark.grids.resolve import resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.initializers.errors import VitinitError
from vitinit.runners.launching.launch import _check_that_it_compiles

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


def test_without_a_compiler_nothing_is_compiled(tmp_path, monkeypatch):
    """torch takes g++ or what CXX says, and no other."""
    compiler = tmp_path / "bin/clang++"
    compiler.parent.mkdir()
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent))
    monkeypatch.delenv("CXX", raising=False)
    why = "torch.compile needs a C++ compiler on a CPU, and 'g++' is not on the PATH"
    with pytest.raises(VitinitError, match=re.escape(f"--compile: {why}")):
        _check_that_it_compiles("cpu", False, profile=None, display=None)
    monkeypatch.setenv("CXX", "clang++ -v")
    _check_that_it_compiles("cpu", False, profile=None, display=None)
