"""Parameters that several modules share, and that a method replaces by new objects."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import timm
import torch
from small_models import differing, state
from torch import nn

import vitinit
from initializers.registry import Initializer, register

TINY: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4, "num_classes": 3}


def tiny(**more: Any) -> Any:
    return timm.models.VisionTransformer(**TINY, **more)


def one_proj(model: Any) -> None:
    for block in model.blocks:
        block.attn.proj.weight = model.blocks[0].attn.proj.weight


def one_qkv(model: Any) -> None:
    for block in model.blocks:
        block.attn.qkv = model.blocks[0].attn.qkv


def one_memory(model: Any) -> None:
    model.blocks[1].attn.qkv.weight.data = model.blocks[0].attn.qkv.weight.data


def one_block(model: Any) -> None:
    model.blocks = nn.Sequential(*[model.blocks[0]] * 3)


@pytest.mark.parametrize("method", ["depth_scaled", "mimetic", "zero_branch"])
@pytest.mark.parametrize("share", [one_proj, one_qkv, one_memory])
def test_a_shared_parameter_is_refused_where_the_method_sets_it(share: Any, method: str) -> None:
    model = tiny()
    share(model)
    before = state(model)
    if share is not one_proj and method != "mimetic":  # which leave W_q, W_k and W_v alone
        vitinit.initialize(model, method)
        return
    with pytest.raises(vitinit.VitinitError, match="shares"):
        vitinit.initialize(model, method, base="trunc_normal")
    assert differing(before, state(model)) == set()


def test_queries_tied_to_keys_are_refused() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "image_size": 32, "patch_size": 8}
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, intermediate_size=96))
    parts = dict(model.named_modules())
    query = next(part for name, part in parts.items() if name.endswith((".query", ".q_proj")))
    key = next(part for name, part in parts.items() if name.endswith((".key", ".k_proj")))
    key.weight = query.weight
    with pytest.raises(vitinit.VitinitError, match="shares"):
        vitinit.initialize(model, "mimetic", base="trunc_normal")


def test_one_block_in_three_places_is_set_once_and_it_is_said() -> None:
    alone, repeated = tiny(), tiny()
    one_block(repeated)
    alone.blocks = alone.blocks[:1]
    for model in (alone, repeated):
        report = vitinit.initialize(model, "mimetic", base="trunc_normal", seed=1)
    assert torch.equal(alone.blocks[0].attn.qkv.weight, repeated.blocks[2].attn.qkv.weight)
    assert "shared, set once: blocks.0.attn.qkv.weight = blocks.1.attn.qkv.weight" in "".join(report.remarks)
    with pytest.raises(vitinit.VitinitError, match="in several places"):
        vitinit.initialize(repeated, "depth_scaled")


class Replacing(Initializer):
    """Assigns parameters as people write it."""

    name: ClassVar[str] = "replacing_in_a_test"
    touches: ClassVar[tuple[str, ...]] = ("*",)
    fails: bool = False
    wrong: bool = False

    def apply(self, model: nn.Module, generator: torch.Generator, progress: Any) -> None:
        head: Any = model.get_submodule("head")
        torch.set_default_dtype(torch.float64)
        np.random.rand()
        head.weight = nn.Parameter(torch.full((3, 49 if self.wrong else 48), 0.5))
        head.extra = "more"
        if self.fails:
            raise ValueError("on purpose")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_of_a_new_parameter_are_copied_into_the_one_that_an_optimiser_holds(dtype: torch.dtype) -> None:
    register(Replacing)
    model, drawn = tiny().to(dtype), np.random.get_state()[1].copy()
    held = model.head.weight
    vitinit.initialize(model, "replacing_in_a_test")
    assert model.head.weight is held
    assert (held == 0.5).all()
    assert held.dtype == dtype
    assert torch.get_default_dtype() == torch.float32
    assert (np.random.get_state()[1] == drawn).all()


@pytest.mark.parametrize("how", [{"fails": True}, {"wrong": True}])
def test_what_a_failed_method_has_replaced_is_put_back(how: dict[str, bool]) -> None:
    register(Replacing)
    model = tiny()
    held, before = model.head.weight, state(model)
    with pytest.raises((ValueError, vitinit.VitinitError)) as caught:
        vitinit.initialize(model, "replacing_in_a_test", **how)
    assert "fails" in how or "replaces 'head.weight'" in str(caught.value)
    assert model.head.weight is held
    assert not hasattr(model.head, "extra")
    assert differing(before, state(model)) == set()
    assert torch.get_default_dtype() == torch.float32
