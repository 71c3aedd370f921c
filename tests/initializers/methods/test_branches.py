"""Methods that scale or clear what is there: zero query, zero branch, depth-scaled, mimetic's mean of the MLP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import zoo
from small_models import ARCHS, CONVIT, VIT, differing, f64, generator, images, model, silent, softmax, state

import vitinit
from initializers import registry
from initializers.errors import VitinitError


def both(arch: str, name: str, **params: Any) -> tuple[Any, Any]:
    """The model before and after, with biases that are not zero."""
    before, after = model(ARCHS[arch]), model(ARCHS[arch])
    for m in (before, after):
        registry.build("kaiming_uniform", {}).apply(m, generator(9), silent)
    registry.build(name, params).apply(after, generator(0), silent)
    return before, after


def test_with_zero_queries_attention_is_uniform_on_any_input() -> None:
    before, after = both("vit", "zero_query")
    x = np.random.default_rng(0).normal(size=(7, 48))
    for block in after.blocks:
        weight, bias = f64(block.attn.qkv.weight), f64(block.attn.qkv.bias)
        query, key = x @ weight[:48].T + bias[:48], x @ weight[48:96].T + bias[48:96]
        np.testing.assert_array_equal(softmax(query[:, :12] @ key[:, :12].T / np.sqrt(12)), 1 / 7)
        assert np.abs(bias[48:]).min() > 0, "k and v keep theirs"
    assert differing(state(before), state(after)) == {
        f"blocks.{i}.attn.qkv.{end}" for i in range(VIT.depth) for end in ("weight", "bias")
    }


def test_with_zero_branches_every_block_is_the_identity_and_two_matrices_have_a_gradient() -> None:
    _, m = both("convit", "zero_branch")
    x = torch.randn(2, 64, 48, generator=generator(4))
    for block in m.blocks:
        assert torch.equal(block(x), x)
    m(images()).square().sum().backward()
    learning = {name for name, parameter in m.blocks.named_parameters() if parameter.grad.any()}
    assert {name.split(".", 1)[1] for name in learning} == {
        f"{last}.{end}" for last in ("attn.proj", "mlp.fc2") for end in ("weight", "bias")
    }


@pytest.mark.parametrize(("arch", "rule"), [("vit", "gpt2"), ("convit", "fix_init"), ("convit", "gpt2")])
def test_last_matrices_are_divided_by_the_stated_root_and_nothing_else_is(arch: str, rule: str) -> None:
    before, after = both(arch, "depth_scaled", rule=rule)
    depth = len(after.blocks)
    for number, (old, new) in enumerate(zip(before.blocks, after.blocks, strict=True)):
        factor = (2 * (number + 1 if rule == "fix_init" else depth)) ** -0.5
        np.testing.assert_allclose(f64(new.attn.proj.weight), factor * f64(old.attn.proj.weight), rtol=1e-6)
        np.testing.assert_allclose(f64(new.mlp.fc2.weight), factor * f64(old.mlp.fc2.weight), rtol=1e-6)
    assert differing(state(before), state(after)) == {
        f"blocks.{i}.{last}.weight" for i in range(depth) for last in ("attn.proj", "mlp.fc2")
    }


def test_fix_init_is_timms() -> None:
    """timm's own model, built with `fix_init`, against ours from the same start."""
    from timm.models.vision_transformer import VisionTransformer

    ours, theirs = (VisionTransformer(**zoo.SMALL) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    theirs.fix_init_weight()
    vitinit.initialize(ours, "depth_scaled")
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value, msg=name)


@pytest.mark.parametrize("parts", ["both", "qk"])
def test_a_mean_is_added_to_the_first_matrix_and_mimetic_is_as_without(parts: str) -> None:
    _, without = both("vit", "mimetic", parts=parts)
    _, m = both("vit", "mimetic", parts=parts, mlp_mean=0.03)
    assert differing(state(without), state(m)) == {f"blocks.{i}.mlp.fc1.weight" for i in range(VIT.depth)}
    for old, new in zip(without.blocks, m.blocks, strict=True):
        np.testing.assert_allclose(f64(new.mlp.fc1.weight) - f64(old.mlp.fc1.weight), 0.03, atol=1e-7)


def test_attention_outside_a_block_has_no_mlp() -> None:
    class Bare(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(8, 2)
            self.head = torch.nn.Linear(8, 2)

    m = Bare()
    before = state(m)
    with pytest.raises(VitinitError, match="no MLP is in one block with attention 'attention'"):
        vitinit.initialize(m, "zero_branch")
    assert differing(before, state(m)) == set()


def test_gated_queries_too() -> None:
    m = model(CONVIT)
    registry.build("zero_query", {}).apply(m, generator(), silent)
    assert not m.blocks[0].attn.qk.weight[:48].any()
    assert m.blocks[0].attn.qk.weight[48:].all()
