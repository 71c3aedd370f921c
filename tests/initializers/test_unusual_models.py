"""`vitinit.initialize` on models that are not what they seem: hooks, computed weights, what is fixed or shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import timm
import torch
from small_models import state
from torch import nn
from torch.nn.utils import prune

import vitinit
from initializers import registry

TINY: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4, "num_classes": 3}


def tiny(**more: Any) -> Any:
    return timm.models.VisionTransformer(**TINY, **more)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_hooks_on_gradient_accumulators_stay(dtype: torch.dtype) -> None:
    """There DDP hangs its all-reduce; a node that is replaced would lose it without a word."""
    m = tiny().to(dtype)
    nodes, seen = [], []
    for parameter in m.parameters():
        nodes.append(parameter.expand_as(parameter).grad_fn.next_functions[0][0])
        nodes[-1].register_hook(lambda *_: seen.append(1))
    before = {name: id(parameter) for name, parameter in m.named_parameters()}
    vitinit.initialize(m, "mimetic", base="trunc_normal")
    assert {name: id(parameter) for name, parameter in m.named_parameters()} == before
    assert {parameter.dtype for parameter in m.parameters()} == {dtype}
    m(torch.ones(1, 3, 32, 32, dtype=dtype)).sum().backward()
    assert len(seen) == len(nodes)


def test_a_tied_parameter_in_another_type_stays_tied() -> None:
    m = nn.ModuleDict({"one": nn.Linear(8, 8), "two": nn.Linear(8, 8), "norm": nn.BatchNorm1d(8)}).bfloat16()
    m["two"].weight = m["one"].weight
    vitinit.initialize(m, base="trunc_normal", seed=1)
    assert m["two"].weight is m["one"].weight
    assert float(m["one"].weight.detach().float().std()) == pytest.approx(0.02, rel=0.3)


class Beside(nn.Module):
    """Uses parameters as it has them in an attribute, a list and a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.vit = tiny()
        head = self.vit.head
        vars(self).update(norm=self.vit.norm.weight, weights=[head.weight, "more"], biases=(head.bias,))

    def forward(self, x: torch.Tensor) -> Any:
        tokens_BND = self.vit.forward_features(x) * self.norm
        return nn.functional.linear(tokens_BND[:, 0], self.weights[0], self.biases[0])


def test_what_is_kept_beside_the_parameters_has_their_type() -> None:
    """The forward pass that images are for meets one type; afterwards all is the very object that it was."""
    dtype = torch.bfloat16
    m, plain = Beside().to(dtype), Beside()
    kept, images = dict(vars(m)), torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    for each in (m, plain):
        vitinit.initialize(each, "placebo", of="impulse", keep="entropy", base="trunc_normal", images=images)
    assert all(vars(m)[name] is value for name, value in kept.items())
    assert m.weights[0] is m.vit.head.weight
    assert all(torch.equal(value, state(plain)[name].to(dtype)) for name, value in state(m).items())


def test_what_is_kept_beside_them_is_put_back_where_it_fails() -> None:
    m = Beside().bfloat16()
    kept, before = dict(vars(m)), state(m)
    with pytest.raises(vitinit.VitinitError, match="does not take images of 3 x 40 x 40"):
        vitinit.initialize(m, "placebo", keep="entropy", base="trunc_normal", images=torch.ones(1, 3, 40, 40))
    assert all(vars(m)[name] is value for name, value in kept.items())
    assert all(torch.equal(value, before[name]) for name, value in state(m).items())


def test_a_weight_that_is_computed_from_others_is_refused() -> None:
    """What is written to it would be computed anew in the next forward pass."""
    m = nn.TransformerEncoderLayer(48, 4, batch_first=True)
    prune.random_unstructured(m.self_attn, "in_proj_weight", 0.3)
    before = state(m)
    with pytest.raises(vitinit.VitinitError, match="'in_proj_weight' in MultiheadAttention is computed from others"):
        vitinit.initialize(m, "mimetic")
    assert all(torch.equal(value, before[name]) for name, value in state(m).items())


class Own(nn.Module):
    """Somebody's attention."""

    def __init__(self, key_rows: int = 48) -> None:
        super().__init__()
        self.heads, self.window_size = 4, 4
        self.to_q, self.out = nn.Linear(48, 48, bias=False), nn.Linear(48, 48)
        self.to_k, self.to_v = nn.Linear(48, key_rows, bias=False), nn.Linear(48, key_rows, bias=False)
        self.table = nn.Parameter(torch.zeros(49, 4))
        self.index = torch.zeros(16, 16, dtype=torch.long)

    @property
    def joined(self) -> torch.Tensor:
        return torch.cat([self.to_q.weight, self.to_k.weight, self.to_v.weight])


@pytest.fixture
def adapter() -> Iterator[Callable[..., None]]:
    """Registers one of `Own`, with other parts."""

    def register(**other: Any) -> None:
        parts = {"query": vitinit.linear("to_q"), "key": vitinit.linear("to_k"), "value": vitinit.linear("to_v")}
        given: dict[str, Any] = {**parts, "proj": vitinit.linear("out"), **other}
        attention = vitinit.Attention((Own,), "heads", **given)
        vitinit.register(vitinit.Adapter("unusual", attention=(attention,), parameters={"*table": 0.0}))

    yield register
    vitinit.unregister("unusual")


def test_a_property_is_no_parameter(adapter: Callable[..., None]) -> None:
    query, key, value = vitinit.fused("joined", "")
    adapter(query=query, key=key, value=value)
    with pytest.raises(vitinit.VitinitError, match="'joined' in Own is computed from others"):
        vitinit.initialize(nn.Sequential(Own()), "mimetic")


@pytest.mark.parametrize("asked", [("mimetic", None), (None, "orthogonal")])
def test_heads_that_share_keys_and_values_are_refused(asked: tuple[Any, Any], adapter: Callable[..., None]) -> None:
    adapter()
    method, base = asked
    with pytest.raises(vitinit.VitinitError, match="have 48 and 24 rows: no method is made for attention whose heads"):
        vitinit.initialize(nn.Sequential(Own(key_rows=24)), method, base=base)


def test_a_window_that_is_no_pair_is_refused(adapter: Callable[..., None]) -> None:
    adapter(table="table", table_index="index", window="window_size")
    with pytest.raises(vitinit.VitinitError, match="'window_size' must be rows and columns, not 4"):
        vitinit.initialize(nn.Sequential(Own()), "impulse")


def test_fixed_positions_stay_and_it_is_said() -> None:
    m, learned = tiny(), tiny()
    m.pos_embed.requires_grad_(False).copy_(torch.arange(17 * 48).view(1, 17, 48) / 100)
    fixed = m.pos_embed.clone()
    report = vitinit.initialize(m, base="trunc_normal")
    assert torch.equal(m.pos_embed, fixed)
    assert report.remarks == ("base trunc_normal: pos_embed is fixed (requires_grad is False): left as it is",)
    report = vitinit.initialize(learned, base="trunc_normal")
    assert "pos_embed" in [change.name for change in report.changes]
    assert report.remarks == ()


def test_two_fixed_positions_are_said_in_the_plural() -> None:
    m = nn.ModuleDict({"a": tiny(), "b": tiny()})
    for part in m.values():
        part.pos_embed.requires_grad_(False)
    said = "a.pos_embed, b.pos_embed are fixed (requires_grad is False): left as they are"
    assert vitinit.initialize(m, base="trunc_normal").remarks == (f"base trunc_normal: {said}",)


def test_every_base_says_it_whatever_else_it_says() -> None:
    free, fixed = tiny(), tiny()
    fixed.pos_embed.requires_grad_(False)
    for base in registry.names("base"):
        said = f"base {base}: pos_embed is fixed (requires_grad is False): left as it is"
        others = vitinit.initialize(free, base=base).remarks
        assert vitinit.initialize(fixed, base=base).remarks == (said, *others)
        assert len(others) == (base == "sinusoidal")


@pytest.mark.parametrize("scaled", [{"layer_scale": 0.1}, {}], ids=["layer scale", "plain"])
def test_what_was_on_the_meta_device_is_set_as_it_is_told(scaled: dict[str, float]) -> None:
    """What is advised can be done: `layer_scale` is refused where there is none."""
    with torch.device("meta"):
        m = tiny(init_values=1e-5) if scaled else tiny()
    with pytest.raises(vitinit.VitinitError, match="initialise with a base") as caught:
        vitinit.initialize(m, base="trunc_normal")
    assert ("layer_scale" in str(caught.value)) == bool(scaled)
    m.to_empty(device="cpu")
    for tensor in m.parameters():
        tensor.data.fill_(123.0)
    vitinit.initialize(m, "mimetic", base="trunc_normal", **scaled)
    assert not [name for name, tensor in m.named_parameters() if (tensor == 123).any()]


class Scaled(nn.Linear):
    """A Linear with a parameter more."""

    def __init__(self) -> None:
        super().__init__(48, 48)
        self.sigma = nn.Parameter(torch.full((1,), 7.0))


def test_a_parameter_that_a_linear_usually_lacks_is_not_passed_over() -> None:
    with pytest.raises(vitinit.VitinitError, match="no rule for the parameter '0.sigma'"):
        vitinit.initialize(nn.Sequential(Scaled()), base="trunc_normal")
    vitinit.register(vitinit.Adapter("scaled", models=(nn.Sequential,), parameters={"*sigma": 2.0}))
    try:
        m = nn.Sequential(Scaled())
        vitinit.initialize(m, base="trunc_normal")
        assert m[0].sigma.item() == 2
    finally:
        vitinit.unregister("scaled")


@pytest.mark.parametrize("wrong", [vitinit.Part, "mine", nn.Linear])
def test_what_is_no_adapter_is_not_remembered(wrong: Any) -> None:
    with pytest.raises(vitinit.VitinitError, match="is not an Adapter, .* bases and methods: initializers.registry"):
        vitinit.register(wrong)
    vitinit.initialize(tiny(), "mimetic")


def test_two_parameters_of_one_memory_are_put_back_in_turn() -> None:
    """The last one is given numbers that its type does not hold, after the first two were written."""
    last = nn.Module()
    last.gain = nn.Parameter(torch.ones(1))
    m = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), last).half()
    m[1].weight.data = m[0].weight.data
    vitinit.register(vitinit.Adapter("huge", models=(nn.Sequential,), parameters={"2.gain": 1e6}))
    before = m[0].weight.detach().clone()
    try:
        with pytest.raises(vitinit.VitinitError, match="float16 has none beyond 65504"):
            vitinit.initialize(m, base="trunc_normal")
    finally:
        vitinit.unregister("huge")
    assert torch.equal(m[0].weight, before)
