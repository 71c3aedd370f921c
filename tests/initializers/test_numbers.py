"""`vitinit.initialize` on other types than float32, beside numbers that are not finite, beside what is no number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import zoo
from small_models import differing, state
from torch import nn

import vitinit


@pytest.mark.parametrize(
    ("dtype", "method"), [(torch.bfloat16, "impulse"), (torch.float16, "mimetic"), (torch.float64, "impulse")]
)
def test_any_float_type_has_the_float32_numbers_rounded_once(dtype: torch.dtype, method: str) -> None:
    plain, other = zoo.build("timm ViT"), zoo.build("timm ViT").to(dtype)
    vitinit.initialize(plain, method, base="trunc_normal", seed=3)
    vitinit.initialize(other, method, base="trunc_normal", seed=3)
    for (name, ours), theirs in zip(other.named_parameters(), plain.parameters(), strict=True):
        assert ours.dtype == dtype
        assert torch.equal(ours, theirs.to(dtype)), name


def test_of_float64_only_what_is_set_is_rounded_to_float32() -> None:
    m = zoo.build("timm ViT").double()
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.div_(3)
        for block in m.blocks:
            block.attn.qkv.bias.fill_(1 / 3)
    before = state(m)
    report = vitinit.initialize(m, "zero_query")
    set_ = {f"blocks.{i}.attn.qkv.{end}" for i in (0, 1) for end in ("weight", "bias")}
    assert {change.name for change in report.changes} == set_ == differing(before, state(m))
    for name in set_:
        assert not m.get_parameter(name)[:48].any()
        assert torch.equal(m.get_parameter(name)[48:], before[name][48:]), "W_k and W_v, which lie in the same tensor"


@pytest.mark.parametrize(
    ("asked", "name", "number"),
    [
        ({"layer_scale": 1e5}, "blocks.0.ls1.gamma", "100000"),
        ({"layer_scale": 65520}, "blocks.0.ls1.gamma", "65520"),  # which rounds to infinity, and 65519 to 65504
        ({"method": "impulse", "base": "trunc_normal", "weight_norm": 1e7}, "blocks.0.attn.qkv.weight", "[0-9.e+]+"),
    ],
)
def test_what_the_type_of_a_parameter_does_not_hold_is_refused(asked: dict[str, Any], name: str, number: str) -> None:
    m = zoo.build("timm ViT registers, layer scale").half()
    before = state(m)
    says = f"^'{name}' would be given numbers up to {number}, and float16 has none beyond 65504$"
    with pytest.raises(vitinit.VitinitError, match=says):
        vitinit.initialize(m, **asked)
    assert differing(before, state(m)) == set()
    vitinit.initialize(m, layer_scale=65519)


@pytest.mark.parametrize("method", ["mimetic", "placebo"])
def test_a_nan_elsewhere_is_not_the_methods_fault(method: str) -> None:
    m = zoo.build("timm ViT")
    m.head.weight.detach()[0, 0] = float("nan")
    before = state(m)
    report = vitinit.initialize(m, method)
    assert {change.name for change in report.changes} == differing(before, state(m))
    assert "head.weight" not in differing(before, state(m))


def test_one_that_a_method_leaves_in_what_it_sets_was_there_before() -> None:
    m = zoo.build("timm ViT")
    weight = m.blocks[1].attn.qkv.weight.detach()
    weight[-1, 0] = float("inf")  # of W_v
    so_far = "where there were such values before, in float32"
    says = rf"^initializer 'zero_query' left .* in 'blocks\.1\.attn\.qkv\.weight', {so_far}$"
    with pytest.raises(vitinit.VitinitError, match=says):
        vitinit.initialize(m, "zero_query")
    assert weight[:48].any(), "nothing is changed"
    vitinit.initialize(m, "zero_query", base="trunc_normal")
    assert all(value.isfinite().all() for value in state(m).values())


class WithState(nn.Module):
    """What a layer of another library may keep beside its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = zoo.build("timm ViT")

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


@pytest.mark.parametrize("method", ["mimetic", "placebo"])
def test_a_state_that_is_no_tensor_is_passed_over(method: str) -> None:
    m, plain = WithState(), zoo.build("timm ViT")
    vitinit.initialize(m, method, base="trunc_normal", seed=2)
    vitinit.initialize(plain, method, base="trunc_normal", seed=2)
    assert differing(state(m.inner), state(plain)) == set()
