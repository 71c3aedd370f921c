"""`vitinit.initialize` on models of one's own: adapters, what is wrong in them, models that look like known ones."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
import zoo
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import vitinit
from initializers import registry
from initializers.initialize import on_pseudo_input
from initializers.whole_model import places


class Own(nn.Module):
    """Somebody's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, self.to_q, self.to_kv, self.out = 4, nn.Linear(48, 48), nn.Linear(48, 96), nn.Linear(48, 48)


def test_an_own_model_takes_a_dozen_lines() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.where = Own(), nn.Parameter(torch.randn(17, 48))

    with pytest.raises(vitinit.VitinitError, match="no adapter knows"):
        vitinit.initialize(Model(), "mimetic")
    key, value = vitinit.fused("to_kv.weight", "to_kv.bias", of=2)
    ours = vitinit.register(
        vitinit.Adapter(
            name="ours",
            models=(Model,),
            attention=(
                vitinit.Attention((Own,), "n_heads", vitinit.linear("to_q"), key, value, vitinit.linear("out")),
            ),
            position="where",
            grid=lambda model: (4, 4),
            parameters={"where": "position"},
        )
    )
    try:
        m = Model()
        report = vitinit.initialize(m, "impulse", base="kaiming_uniform")
        assert len(report.changes) == len(list(m.parameters()))
        vitinit.initialize(m, "mimetic")
        path = (m.attention.out.weight @ m.attention.to_kv.weight[48:]).detach()
        assert float(path.diagonal().mean()) == pytest.approx(-0.4, abs=0.05)
    finally:
        vitinit.unregister(ours)
    with pytest.raises(vitinit.VitinitError, match="no adapter knows"):
        vitinit.initialize(Model(), "mimetic")
    with pytest.raises(vitinit.VitinitError, match="'ours' is not registered; registered: none"):
        vitinit.unregister(ours)


def test_an_adapter_registered_again_takes_the_place_of_the_first_and_its_name_is_enough_to_forget_it() -> None:
    """As when a cell of a notebook is run twice."""
    key, value = vitinit.fused("to_kv.weight", "to_kv.bias", of=2)
    own = vitinit.Attention((Own,), "n_heads", vitinit.linear("to_query"), key, value, vitinit.linear("out"))
    try:
        vitinit.register(vitinit.Adapter("ours", attention=(own,)))
        with pytest.raises(vitinit.VitinitError, match="^adapter 'ours': 'to_query' is not in Own; it has to_q, "):
            vitinit.initialize(Own(), base="trunc_normal")
        vitinit.register(vitinit.Adapter("ours", attention=(dataclasses.replace(own, query=vitinit.linear("to_q")),)))
        vitinit.initialize(Own(), "mimetic")
    finally:
        vitinit.unregister("ours")
    with pytest.raises(vitinit.VitinitError, match="'ours' is not registered; registered: none"):
        vitinit.unregister("ours")
    with pytest.raises(vitinit.VitinitError, match="no adapter knows"):
        vitinit.initialize(Own(), "mimetic")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"heads": "num_heads"}, "adapter 'wrong': 'num_heads' is not in Own; it has to_q, to_kv, out, n_heads"),
        ({"heads": "out"}, "adapter 'wrong': 'out' in Own is no number of heads"),
        ({"query": vitinit.Part("to_q")}, "adapter 'wrong': 'to_q' in Own is a Linear, not a tensor"),
        ({"key": vitinit.linear("to_q.0")}, "adapter 'wrong': 'to_q.0' is not in Own; 'to_q' has weight, bias, in_f"),
        ({"value": vitinit.fused("to_q.weight", "", 5)[2]}, "the 48 rows of 'to_q.weight' in Own are not those of 5 p"),
        ({"query": vitinit.fused("to_q.weight", "")}, r"Attention: query must be a Part, such as linear\('to_q'\)"),
        ({"models": nn.Linear}, r"adapter 'wrong': models must be a tuple of classes or their names, .*, not <class"),
        ({"beside": (None,)}, r"adapter 'wrong': beside must be a tuple of classes or their names, .*, not \(None,\)"),
        ({"attention": (3,)}, r"adapter 'wrong': attention must be a tuple of Attention, .*, not \(3,\)"),
        ({"position": 3}, "adapter 'wrong': position must be text, not 3"),
        ({"heads": 3}, "Attention: heads must be text, not 3"),
        ({"types": (Own, 3)}, "Attention: types must be a tuple of classes or their names"),
        ({"rotary": True}, "adapter 'wrong': rotary must be a function of the model, .*, not True"),
        ({"parameters": None}, "adapter 'wrong': parameters must be a mapping of names, .*, not None"),
        ({"parameters": {3: "position"}}, "adapter 'wrong': parameters must be a mapping of names, .*, not {3: "),
        ({"refused": ["Own"]}, r"adapter 'wrong': refused must be a mapping of names of types, .*, not \['Own'\]"),
        ({"name": 3}, "adapter 3: name must be text, not 3"),
        (
            {"position": "pos_emb"},
            r"no absolute position embedding \(adapter 'wrong': 'pos_emb' is not in Model; it has",
        ),
        ({"grid": (4, 4)}, r"adapter 'wrong': grid must be a function of the model, .*, not \(4, 4\)"),
        ({"grid": lambda model: model.grid}, "adapter 'wrong' finds no token grid in Model: AttributeError: 'Model'"),
        (
            {"rotary": lambda model: model.rope},
            "adapter 'wrong' cannot say whether there are rotations in Model: Attrib",
        ),
        ({"parameters": {"where": "positions"}}, "adapter 'wrong' says 'positions' of the parameter 'where', which is"),
    ],
)
def test_what_is_wrong_in_an_adapter_is_one_line(wrong: dict[str, Any], why: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.where = Own(), nn.Parameter(torch.randn(16, 48))

    key, value = vitinit.fused("to_kv.weight", "to_kv.bias", of=2)
    attention = {"heads": "n_heads", "query": vitinit.linear("to_q"), "key": key, "value": value}
    attention |= {"proj": vitinit.linear("out")}
    rest = {"grid": lambda model: (4, 4), "parameters": {"where": "position"}, "position": "where", "models": (Model,)}
    for part, of in wrong.items():
        (attention if part in {*attention, "types"} else rest)[part] = of
    try:
        with pytest.raises(vitinit.VitinitError, match=why) as caught:
            with_adapter(attention, rest, Model())
    finally:
        with suppress(vitinit.VitinitError):
            vitinit.unregister("wrong")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("describe", "why"),
    [
        (lambda: vitinit.Part(3), "Part: weight must be text, not 3"),
        (lambda: vitinit.Part("q.weight", None), "Part: bias must be text, not None"),
        (lambda: vitinit.Part("q.weight", "", 5), "Part: index 5 is none of 1 parts, which are counted from 0"),
        (lambda: vitinit.Normal("a"), "Normal: std must be a number of at least 0, or None, not 'a'"),
        (lambda: vitinit.Normal(-1), "Normal: std must be a number of at least 0, or None, not -1"),
        (lambda: vitinit.Normal(float("nan")), "Normal: std must be a number of at least 0, or None, not nan"),
    ],
)
def test_a_part_or_a_spread_that_is_none_is_refused(describe: Callable[[], object], why: str) -> None:
    with pytest.raises(vitinit.VitinitError, match=why):
        describe()


def test_an_adapter_of_ones_own_class_may_hold_more() -> None:
    @dataclasses.dataclass(frozen=True)
    class Noted(vitinit.Adapter):
        note: dict[str, int] = dataclasses.field(default_factory=dict)

    assert Noted("noted", note={"pages": 3}).note == {"pages": 3}


def test_a_placebo_keeps_positions_that_are_in_an_embedding() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.where = Own(), nn.Embedding(16, 48)

    key, value = vitinit.fused("to_kv.weight", "to_kv.bias", of=2)
    attention = {"heads": "n_heads", "query": vitinit.linear("to_q"), "key": key, "value": value}
    kind = vitinit.Attention(types=(Own,), proj=vitinit.linear("out"), **attention)
    rules = {"where.weight": "position"}
    vitinit.register(vitinit.Adapter("here", (Model,), (kind,), "where.weight", lambda model: (4, 4), parameters=rules))
    try:
        method, ours, theirs = {"name": "impulse", "solver": "svd", "position_scale": 18.0}, Model(), Model()
        vitinit.initialize(ours, "impulse", base="trunc_normal", solver="svd", position_scale=18.0)
        vitinit.initialize(theirs, "placebo", base="trunc_normal", of=method)
        assert torch.equal(ours.where.weight, theirs.where.weight)
        assert not torch.equal(ours.attention.to_q.weight, theirs.attention.to_q.weight)
    finally:
        vitinit.unregister("here")


def test_a_w_proj_that_is_left_out_is_missed_by_who_needs_it_alone() -> None:
    """vit-pytorch has none where its one head is as wide as the model."""
    vit = pytest.importorskip("vit_pytorch").ViT
    m = vit(image_size=32, patch_size=8, num_classes=10, dim=48, depth=2, heads=1, mlp_dim=96, dim_head=48)
    assert isinstance(m.transformer.layers[0][0].to_out, nn.Identity)
    report = vitinit.initialize(m, "impulse", base="trunc_normal")
    assert "transformer.layers.1.0.to_qkv.weight" in {change.name for change in report.changes}
    with pytest.raises(vitinit.VitinitError, match="has no 'to_out.0.weight', which its adapter names"):
        vitinit.initialize(m, "mimetic")


def with_adapter(attention: dict[str, Any], rest: dict[str, Any], model: nn.Module) -> None:
    own = vitinit.Attention(**{"types": (Own,), **attention})
    vitinit.register(vitinit.Adapter(**{"name": "wrong", "attention": (own,), **rest}))
    vitinit.initialize(model, "impulse", base="kaiming_uniform", value_proj="mimetic")


def test_positions_that_are_fixed_stay_and_all_else_is_set() -> None:
    transformers = pytest.importorskip("transformers")
    m = transformers.ViTMAEModel(transformers.ViTMAEConfig(**zoo.HF, intermediate_size=96))
    fixed = torch.randn(1, 17, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        m.embeddings.position_embeddings.copy_(fixed)
    report = vitinit.initialize(m, "impulse", base="kaiming_uniform")
    assert torch.equal(m.embeddings.position_embeddings, fixed)
    set_to = {n for n, p in m.named_parameters() if p.abs().max() > 0 and not re.search("norm|position", n)}
    assert {change.name for change in report.changes} >= set_to
    assert report.attention_on_target is not None
    assert report.uniform is not None
    assert report.attention_on_target > 2 * report.uniform


class Rotating(nn.MultiheadAttention):
    """A subclass with a forward pass of its own may do anything."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Not its parent's."""
        return super().forward(*args, **kwargs)


def test_a_subclass_with_a_forward_pass_of_its_own_is_not_taken_for_its_parent() -> None:
    with pytest.raises(vitinit.VitinitError, match=r"no adapter knows \(Rotating\)"):
        vitinit.initialize(nn.Sequential(Rotating(48, 4)), "mimetic")
    Rotating.same_attention = True  # type: ignore[attr-defined]
    vitinit.initialize(nn.Sequential(Rotating(48, 4)), "mimetic")


class Gain(nn.Module):
    """An RMS norm as several libraries write it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.full((8,), 3.0)))


@pytest.mark.parametrize("name", ["weight", "gamma", "g", "scale"])
def test_a_gain_of_a_norm_starts_at_one_whatever_it_is_called(name: str) -> None:
    norm = type("RMSNorm", (Gain,), {})(name)
    vitinit.initialize(nn.Sequential(nn.Linear(4, 8), norm), base="kaiming_uniform")
    assert getattr(norm, name).tolist() == [1.0] * 8


def test_what_else_a_norm_has_needs_a_rule_and_the_rule_counts() -> None:
    class RMSNorm(Gain):
        pass

    class Model(nn.Sequential):
        pass

    model = Model(nn.Linear(4, 8), RMSNorm("offset"), RMSNorm("scale"))
    with pytest.raises(vitinit.VitinitError, match=r"no rule for the parameter '1\.offset'"):
        vitinit.initialize(model, base="kaiming_uniform")
    rules = {"1.offset": 0.5, "*.scale": 0.25}
    ours = vitinit.register(vitinit.Adapter(name="ours", models=(Model,), parameters=rules))
    try:
        vitinit.initialize(model, base="kaiming_uniform")
    finally:
        vitinit.unregister(ours)
    assert [model[1].offset.tolist(), model[2].scale.tolist()] == [[0.5] * 8, [0.25] * 8]


class InLists(nn.Module):
    """A ViT that keeps its attention layers in one list and its MLPs in another."""

    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, 16, 32))
        self.attns = nn.ModuleList(nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(4))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4))
        self.head = nn.Linear(32, 10)


@pytest.mark.parametrize(
    ("method", "params"), [("depth_scaled", {}), ("zero_branch", {}), ("mimetic", {"mlp_mean": 0.01})]
)
def test_attention_layers_side_by_side_are_not_each_others_mlp(method: str, params: dict[str, float]) -> None:
    model = InLists()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(vitinit.VitinitError, match="no MLP is in one block with attention"):
        vitinit.initialize(model, method, base="trunc_normal", **params)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    vitinit.initialize(model, "mimetic", base="zero")  # which need no MLP
    assert places(model)["attns.1.out_proj"].role == "proj"


class Named(nn.Module):
    """Attention that no adapter knows, under names with `head` in them."""

    def __init__(self) -> None:
        super().__init__()
        self.multi_head_attn = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
        self.heads = nn.ModuleList(nn.Linear(32, 8) for _ in range(4))


@pytest.mark.parametrize("base", ["jax_vit", "torchvision_vit", "mae"])
def test_a_head_of_attention_is_no_classifier(base: str) -> None:
    """These bases set the classifier to zero, or nearly; Linears of attention they do not."""
    model = nn.ModuleDict({"blocks": nn.ModuleList(Named() for _ in range(2)), "lm_head": nn.Linear(32, 10)})
    vitinit.initialize(model, base=base)
    norms = {name: float(value.detach().norm()) for name, value in model.named_parameters() if name.endswith("weight")}
    assert norms.pop("lm_head.weight") < 1
    assert min(norms.values()) > 1


@pytest.mark.parametrize(
    ("name", "method"), [("timm MLP-Mixer", "impulse_mixing"), ("vit-pytorch SimpleViT", "impulse")]
)
def test_a_model_on_a_gpu_meets_no_tensor_of_the_cpu(name: str, method: str) -> None:
    """PyTorch's own stand-in for a GPU: tensors without numbers that refuse to be mixed with those of the CPU."""
    model = zoo.build(name)
    part = registry.build(method, {}, "method")
    part.check(model)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        for module in model.modules():
            for held in (module._parameters, module._buffers):
                for key, value in held.items():
                    if value is not None and value.is_floating_point():
                        there = torch.empty(value.shape, device="cuda")
                        held[key] = nn.Parameter(there) if held is module._parameters else there
    aim = part.apply(model, torch.Generator().manual_seed(0), lambda done, total: None)
    if aim is not None:
        with fake, pytest.raises(DataDependentOutputException):  # all is computed, and then there is no number
            on_pseudo_input(model, aim)
