"""Operations of a model, by which runs are shared out; and what torch.compile needs."""

from __future__ import annotations

import re

import pytest

from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.models.vit import ViT
from vitinit.initializers.errors import VitinitError
from vitinit.runners.launching.launch import _check_that_it_compiles

VIT = ViT(image_size=32, patch_size=4, width=48, depth=3, heads=4, mlp_ratio=3)
TOKEN = VIT.model_copy(update={"position": "learned", "pool": "token"})
CONVIT = resolve_model({"preset": "convit_micro", "image_size": 32, "patch_size": 4})
CONVMIXER = resolve_model({"preset": "convmixer_micro", "image_size": 32, "patch_size": 4, "kernel_size": 5})


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
