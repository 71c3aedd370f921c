"""`vitinit.initialize` on models of one's own: adapters, what is wrong in them, models that look like known ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import zoo
from small_models import differing, refused, registered, state
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn.utils import prune

import vitinit
from vitinit import linear
from vitinit.initializers import registry
from vitinit.initializers.initialize import on_pseudo_input
from vitinit.initializers.whole_model import places

UNKNOWN = "no adapter knows"
KEY, VALUE = vitinit.fused("to_kv.weight", "to_kv.bias", of=2)


class Own(nn.Module):
    """Somebody's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, self.to_q, self.to_kv, self.out = 4, nn.Linear(48, 48), nn.Linear(48, 96), nn.Linear(48, 48)


class Model(nn.Module):
    """And the positions of its 16 tokens; one more is without a place."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.where = Own(), nn.Parameter(torch.randn(17, 48))


def kind(**other: Any) -> vitinit.Attention:
    given = {"heads": "n_heads", "query": linear("to_q"), "key": KEY, "value": VALUE, "proj": linear("out")}
    return vitinit.Attention(**{"types": (Own,), **given, **other})


REST: dict[str, Any] = {
    "models": (Model,),
    "position": "where",
    "grid": lambda model: (4, 4),
    "parameters": {"where": "position"},
}


def test_an_own_model_takes_a_dozen_lines_and_an_adapter_of_one_name_replaces_the_first() -> None:
    refused(Model(), UNKNOWN, "mimetic")
    with registered("ours", kind(query=linear("to_query"))):
        refused(Model(), "^adapter 'ours': 'to_query' is not in Own; it has to_q, ", base="trunc_normal")
        vitinit.register(vitinit.Adapter("ours", attention=(kind(),), **REST))  # as a cell of a notebook, run again
        m = Model()
        report = vitinit.initialize(m, "impulse", base="kaiming_uniform")
        assert len(report.changes) == len(list(m.parameters()))
        vitinit.initialize(m, "mimetic")
        path = (m.attention.out.weight @ m.attention.to_kv.weight[48:]).detach()
        assert float(path.diagonal().mean()) == pytest.approx(-0.4, abs=0.05)
    refused(Model(), UNKNOWN, "mimetic")


@pytest.mark.parametrize(("given", "std"), [(None, 48**-0.5), (0.3, 0.3), (0.0, 0.0)])
def test_a_normal_parameter_has_the_spread_asked_for_or_that_of_its_width(given: float | None, std: float) -> None:
    with registered("ours", kind(), **{**REST, "parameters": {"where": vitinit.Normal(given)}}):
        m = Model()
        vitinit.initialize(m, base="kaiming_uniform")
    assert float(m.where.detach().std()) == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"heads": "num_heads"}, "adapter 'wrong': 'num_heads' is not in Own; it has to_q, to_kv, out, n_heads"),
        ({"heads": "out"}, "adapter 'wrong': 'out' in Own is no number of heads"),
        ({"query": vitinit.Part("to_q")}, "adapter 'wrong': 'to_q' in Own is a Linear, not a tensor"),
        ({"key": linear("to_q.0")}, "adapter 'wrong': 'to_q.0' is not in Own; 'to_q' has weight, bias, in_f"),
        ({"value": vitinit.fused("to_q.weight", "", 5)[2]}, "the 48 rows of 'to_q.weight' in Own are not those of 5 p"),
        ({"query": vitinit.fused("to_q.weight", "")}, r"Attention: query must be a Part, such as linear\('to_q'\)"),
        ({"models": nn.Linear}, r"adapter 'wrong': models must be a tuple of classes or their names, .*, not <class"),
        ({"attention": (3,)}, r"adapter 'wrong': attention must be a tuple of Attention, .*, not \(3,\)"),
        ({"heads": 3}, "Attention: heads must be text, not 3"),
        ({"rotary": True}, "adapter 'wrong': rotary must be a function of the model, .*, not True"),
        ({"parameters": {3: "position"}}, "adapter 'wrong': parameters must be a mapping of names, .*, not {3: "),
        ({"refused": ["Own"]}, r"adapter 'wrong': refused must be a mapping of names of types, .*, not \['Own'\]"),
        ({"name": 3}, "adapter 3: name must be text, not 3"),
        ({"position": "pos_emb"}, r"no absolute position embedding \(adapter 'wrong': 'pos_emb' is not in Model; it h"),
        ({"grid": (4, 4)}, r"adapter 'wrong': grid must be a function of the model, .*, not \(4, 4\)"),
        ({"grid": lambda model: model.grid}, "adapter 'wrong' finds no token grid in Model: AttributeError: 'Model'"),
        ({"rotary": lambda model: model.rope}, "'wrong' cannot say whether there are rotations in Model: Attrib"),
        ({"parameters": {"where": "positions"}}, "adapter 'wrong' says 'positions' of the parameter 'where', which is"),
    ],
)
def test_what_is_wrong_in_an_adapter_is_one_line(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(vitinit.VitinitError, match=why):
        with_adapter(wrong)


def with_adapter(wrong: dict[str, Any]) -> None:
    names = {field.name for field in dataclasses.fields(vitinit.Attention)}
    own = kind(**{name: value for name, value in wrong.items() if name in names})
    rest = {name: value for name, value in wrong.items() if name not in names}
    adapter = vitinit.Adapter(**{"name": "wrong", "attention": (own,), **REST, **rest})
    try:
        vitinit.register(adapter)
        vitinit.initialize(Model(), "impulse", base="kaiming_uniform", value_proj="mimetic")
    finally:
        vitinit.unregister(adapter)


def test_an_adapter_of_ones_own_class_may_hold_more() -> None:
    @dataclasses.dataclass(frozen=True)
    class Noted(vitinit.Adapter):
        note: dict[str, int] = dataclasses.field(default_factory=dict)

    assert Noted("noted", note={"pages": 3}).note == {"pages": 3}


def test_a_norm_of_queries_alone_undoes_the_size_of_w_q() -> None:
    m = Model()
    m.attention.norm = nn.LayerNorm(12)
    with registered("ours", kind(query_norm="norm"), **REST):
        refused(m, r"'zero_query': Model normalises queries and keys \(attention\)", "zero_query")


def test_a_placebo_keeps_positions_that_are_in_an_embedding() -> None:
    method, ours, theirs = {"name": "impulse", "solver": "svd", "position_scale": 18.0}, Model(), Model()
    for m in (ours, theirs):
        del m.where
        m.where = nn.Embedding(16, 48)
    there = {"position": "where.weight", "parameters": {"where.weight": "position"}}
    with registered("here", kind(), **{**REST, **there}):
        vitinit.initialize(ours, method, base="trunc_normal")
        vitinit.initialize(theirs, "placebo", base="trunc_normal", of=method)
    assert torch.equal(ours.where.weight, theirs.where.weight)
    assert not torch.equal(ours.attention.to_q.weight, theirs.attention.to_q.weight)


def test_impulses_are_solved_on_positions_that_are_fixed() -> None:
    transformers = pytest.importorskip("transformers")
    m = transformers.ViTMAEModel(transformers.ViTMAEConfig(**zoo.HF, intermediate_size=96))
    fixed = torch.randn(1, 17, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        m.embeddings.position_embeddings.copy_(fixed)
    report = vitinit.initialize(m, "impulse", base="kaiming_uniform")
    assert torch.equal(m.embeddings.position_embeddings, fixed)
    assert report.attention_on_target > 2 * report.uniform


# --- what only looks like a known model ------------------------------------------------------------------------------


class Rotating(nn.MultiheadAttention):
    """A subclass with a forward pass of its own may do anything."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Not its parent's."""
        return super().forward(*args, **kwargs)


def test_a_subclass_with_a_forward_pass_of_its_own_is_not_taken_for_its_parent() -> None:
    refused(nn.Sequential(Rotating(48, 4)), rf"{UNKNOWN} \(Rotating\)", "mimetic")
    Rotating.same_attention = True  # type: ignore[attr-defined]
    vitinit.initialize(nn.Sequential(Rotating(48, 4)), "mimetic")
    again = type("Again", (Rotating,), {"forward": Rotating.forward})
    refused(nn.Sequential(again(48, 4)), rf"{UNKNOWN} \(Again\)", "mimetic")  # what its parent says is not of it


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


def test_what_else_a_norm_or_a_linear_has_needs_a_rule_and_the_rule_counts() -> None:
    norm = type("RMSNorm", (Gain,), {})
    more = nn.Linear(8, 8)
    more.sigma = nn.Parameter(torch.full((1,), 7.0))
    m = nn.Sequential(norm("offset"), norm("scale"), more)
    refused(m, r"no rule for the parameter '0\.offset'", base="kaiming_uniform")
    refused(nn.Sequential(more), r"no rule for the parameter '0\.sigma'", base="kaiming_uniform")
    with registered("ours", models=(nn.Sequential,), parameters={"0.offset": 0.5, "*.scale": 0.25, "*sigma": 2.0}):
        vitinit.initialize(m, base="kaiming_uniform")
    assert [m[0].offset.tolist(), m[1].scale.tolist(), more.sigma.item()] == [[0.5] * 8, [0.25] * 8, 2]


class InLists(nn.Module):
    """A ViT that keeps its attention layers in one list and its MLPs in another."""

    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, 16, 32))
        self.attns = nn.ModuleList(nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(4))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(4))
        self.head = nn.Linear(32, 10)


def test_attention_layers_side_by_side_are_not_each_others_mlp() -> None:
    m, alone = InLists(), nn.Module()
    alone.attention, alone.head = nn.MultiheadAttention(8, 2), nn.Linear(8, 2)
    for method, params in (("depth_scaled", {}), ("zero_branch", {}), ("mimetic", {"mlp_mean": 0.01})):
        refused(m, "no MLP is in one block with attention 'attns.0'", method, base="trunc_normal", **params)
    refused(alone, "no MLP is in one block with attention 'attention'", "zero_branch")
    vitinit.initialize(m, "mimetic", base="zero")  # which need no MLP
    assert places(m)["attns.1.out_proj"].role == "proj"


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


def test_a_model_on_a_gpu_meets_no_tensor_of_the_cpu() -> None:
    """PyTorch's own stand-in for a GPU: tensors without numbers that refuse to be mixed with those of the CPU."""
    model = zoo.build("vit-pytorch SimpleViT")
    part = registry.build("impulse", {}, "method")
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


# --- values wider or narrower than keys, and other sizes -------------------------------------------------------------

D, HEADS = 48, 4
SIZES = [(24, 52), (48, 24)]
"""Rows of W_q and W_k, and those of W_v."""


class Sized(nn.Module):
    """W_v of `value` rows, W_proj of `taken` columns, or none; more that an adapter may name."""

    def __init__(self, key: int = D, value: int = D, taken: int | None = -1, query: int | None = None) -> None:
        super().__init__()
        self.heads, self.window_size = HEADS, 4
        self.to_q, self.to_k = nn.Linear(D, query or key, bias=False), nn.Linear(D, key, bias=False)
        self.to_v = nn.Linear(D, value)
        self.out = nn.Identity() if taken is None else nn.Linear(value if taken < 0 else taken, D)
        self.table, self.index = torch.zeros(49, 4), torch.zeros(16, 16, dtype=torch.long)

    @property
    def joined(self) -> Tensor:
        return torch.cat([self.to_q.weight, self.to_k.weight, self.to_v.weight])


def sized(**other: Any) -> Any:
    parts = {"query": linear("to_q"), "key": linear("to_k"), "value": linear("to_v"), "proj": linear("out")}
    return registered("sizes", vitinit.Attention((Sized,), "heads", **{**parts, **other}))


def made(key: int, value: int, method: str | None = None, /, **asked: Any) -> Any:
    """The attention, after a base and, where it is asked for, a method."""
    m = Sized(key, value)
    with sized():
        vitinit.initialize(nn.Sequential(m), method, **{"base": "trunc_normal", **asked})
    return m


def query_key(m: Sized) -> Tensor:
    """W_q^T W_k of each head, H x D x D."""
    query_HdD, key_HdD = (part.weight.detach().unflatten(0, (HEADS, -1)) for part in (m.to_q, m.to_k))
    return query_HdD.mT @ key_HdD


def value_path(m: Any) -> Tensor:
    """Sum over heads of W_v,h^T W_proj,h^T: D x D."""
    value_HdD = m.to_v.weight.detach().unflatten(0, (HEADS, -1))
    proj_HDd = m.out.weight.detach().unflatten(1, (HEADS, -1)).transpose(0, 1)
    return (value_HdD.mT @ proj_HDd.mT).sum(0)


@pytest.mark.parametrize(("key", "value"), SIZES)
def test_mimetic_has_the_products_that_it_has_where_they_are_as_wide_and_its_placebo_the_spectra(
    key: int, value: int
) -> None:
    m, as_wide, square = made(key, value, "mimetic"), made(key, key, "mimetic"), made(D, D, "mimetic")
    torch.testing.assert_close(query_key(m), query_key(as_wide))
    goal_DD = value_path(square)
    if value < D:
        u, s, vh = torch.linalg.svd(goal_DD)
        goal_DD = (u * s)[:, :value] @ vh[:value]
    torch.testing.assert_close(value_path(m), goal_DD, atol=1e-5, rtol=1e-4)
    assert -0.45 < float(value_path(square).diagonal().mean()) < -0.3
    placebo = made(key, value, "placebo", of="mimetic")
    for products in (query_key, value_path):
        ours, theirs = products(placebo), products(m)
        assert not torch.allclose(ours, theirs, atol=0.01)
        torch.testing.assert_close(torch.linalg.svdvals(ours), torch.linalg.svdvals(theirs), atol=1e-5, rtol=1e-4)


def test_the_scale_of_scaled_random_goes_by_the_width_of_the_tokens_whatever_w_proj_reads() -> None:
    block, limit = nn.Module(), 0.5 * (3 / D) ** 0.5
    block.attention, block.mlp = Sized(24, 96), nn.Sequential(nn.Linear(D, 60), nn.Linear(60, D))
    with sized():
        vitinit.initialize(nn.Sequential(block), "scaled_random", base="trunc_normal")
    for part in (block.attention.to_q, block.attention.to_v, block.attention.out, block.mlp[0]):
        assert 0.98 * limit < float(part.weight.detach().abs().max()) <= limit


def singular(part: Any, heads: int = 1) -> Tensor:
    return torch.linalg.svdvals(part.weight.detach().unflatten(0, (heads, -1)))


@pytest.mark.parametrize(("key", "value", "base", "gain"), [(48, 52, "orthogonal", 0.0), (24, 48, "spectral", 0.5)])
def test_a_base_sets_each_matrix_for_itself(key: int, value: int, base: str, gain: float) -> None:
    """All singular values are (outputs / inputs)^gain."""
    m = made(key, value, base=base)
    for part in (m.to_q, m.to_k, m.to_v, m.out):
        rows, columns = part.weight.shape
        torch.testing.assert_close(singular(part), torch.full_like(singular(part), (rows / columns) ** gain))


def test_a_base_by_head_or_fused_has_the_rows_of_each_or_of_all() -> None:
    m = made(24, 96, base={"name": "orthogonal", "qkv": "per_head"})
    for part in (m.to_q, m.to_k, m.to_v):
        torch.testing.assert_close(singular(part, HEADS), torch.ones_like(singular(part, HEADS)))
    m = made(24, 96, base={"name": "orthogonal", "qkv": "fused"})
    joined = torch.cat([part.weight.detach() for part in (m.to_q, m.to_k, m.to_v)])
    torch.testing.assert_close(joined.T @ joined, torch.eye(D))


def test_methods_fit_where_they_do_not_set_keys_and_values_alike() -> None:
    with sized():
        for method, asked in (
            *(("conditioned", {}), ("conditioned", {"value": "slices"}), ("dct", {}), ("dct", {"matrix": "query"})),
            ("placebo", {"of": "conditioned"}),
        ):
            why = "is made for values as wide as keys, and in '0' W_v has 48 rows and W_k 24"
            refused(nn.Sequential(Sized(24, 48)), why, method, base="trunc_normal", **asked)
    m = made(24, 96, "conditioned", value="keep")
    for part in (m.to_q, m.to_k):
        torch.testing.assert_close(singular(part, HEADS), torch.ones_like(singular(part, HEADS)))
    value_DD = made(24, D, "dct", matrix="value").to_v.weight.detach()
    torch.testing.assert_close(value_DD @ value_DD.T, torch.eye(D))
    assert float(value_DD[0].std()) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"value": 24, "taken": 48}, "W_v in Sized has 24 rows, and W_proj takes 48: no method is made"),
        ({"value": 96, "taken": 48}, "W_v in Sized has 96 rows, and W_proj takes 48: no method is made"),
        ({"value": 12, "taken": None}, "W_v in Sized has 12 rows, and there is no W_proj: no method is made"),
        ({"query": 48, "key": 24}, "have 48 and 24 rows: no method is made for attention whose heads"),
    ],
)
def test_shared_keys_and_values_that_w_proj_does_not_take_are_refused(sizes: dict[str, Any], why: str) -> None:
    with sized():
        refused(nn.Sequential(Sized(**sizes)), why, "mimetic")
        refused(nn.Sequential(Sized(**sizes)), why, base="orthogonal")


def test_without_w_proj_values_are_as_many_as_channels() -> None:
    m = Sized(key=24, taken=None)
    with sized():
        vitinit.initialize(nn.Sequential(m), base="orthogonal")
        refused(nn.Sequential(m), "has no 'out.weight', which its adapter names", "mimetic")
    torch.testing.assert_close(m.to_v.weight @ m.to_v.weight.T, torch.eye(D))


def test_what_is_computed_from_others_is_no_parameter_and_a_window_is_a_pair() -> None:
    query, key, value = vitinit.fused("joined", "")
    with sized(query=query, key=key, value=value):
        refused(nn.Sequential(Sized()), "'joined' in Sized is computed from others", "mimetic")
    with sized(table="table", table_index="index", window="window_size"):
        refused(nn.Sequential(Sized()), "'window_size' must be rows and columns, not 4", "impulse")
    m = nn.TransformerEncoderLayer(48, 4, batch_first=True)
    prune.random_unstructured(m.self_attn, "in_proj_weight", 0.3)
    refused(m, "'in_proj_weight' in MultiheadAttention is computed from others", "mimetic")


def test_two_parameters_of_one_memory_are_put_back_in_turn() -> None:
    """The last one is given numbers that its type does not hold, after the first two were written."""
    last = nn.Module()
    last.gain = nn.Parameter(torch.ones(1))
    m = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), last).half()
    m[1].weight.data = m[0].weight.data
    with registered("huge", models=(nn.Sequential,), parameters={"2.gain": 1e6}):
        refused(m, "float16 has none beyond 65504", base="trunc_normal")
    assert differing(state(m[0]), state(m[1])) == {"bias"}
