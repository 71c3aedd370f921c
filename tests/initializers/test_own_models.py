"""`vitinit.initialize` on models of one's own: adapters, what is wrong in them, models that look like known ones."""

import importlib
from contextlib import contextmanager

import pytest
import torch
import zoo
from small_models import refused
from torch import nn

import vitinit
from vitinit import adapters
from vitinit.adapters import linear

UNKNOWN = "no adapter knows"
KEY, VALUE = adapters.fused("to_kv.weight", "to_kv.bias", of=2)


class Own(nn.Module):
    """Somebody's own attention."""

    def __init__(self):
        super().__init__()
        self.n_heads, self.to_q, self.to_kv, self.out = 4, nn.Linear(48, 48), nn.Linear(48, 96), nn.Linear(48, 48)
        self.few = nn.Parameter(torch.zeros(24, 48))


class Model(nn.Module):
    """Its model, with positions of 16 tokens and of one without a place."""

    def __init__(self):
        super().__init__()
        self.attention, self.where = Own(), nn.Parameter(torch.randn(17, 48))


def kind(**other):
    given = {"heads": "n_heads", "query": linear("to_q"), "key": KEY, "value": VALUE, "proj": linear("out")}
    return adapters.Attention(**{"types": (Own,), **given, **other})


REST = {
    "models": (Model,),
    "position": "where",
    "grid": lambda model: (4, 4),
    "parameters": {"where": "position", "*.few": 1.0},
}


@contextmanager
def registered(name, *kinds, **more):
    """Make an adapter with these kinds of attention known."""
    adapters.register(adapters.Adapter(name, attention=kinds, **more))
    try:
        yield
    finally:
        adapters.unregister(name)


def test_an_own_model_takes_a_dozen_lines_and_an_adapter_of_one_name_replaces_the_first():
    refused(Model(), UNKNOWN, "mimetic")
    with registered("ours", kind(query=linear("to_query"))):
        refused(Model(), "^adapter 'ours': 'to_query.weight' leads to no parameter of Own", base="trunc_normal")
        adapters.register(adapters.Adapter("ours", attention=(kind(),), **REST))  # as a cell of a notebook, run again
        m = Model()
        report = vitinit.initialize(m, "impulse", base="kaiming_uniform")
        assert len(report.changes) == len(list(m.parameters()))
        vitinit.initialize(m, "mimetic")
        path = (m.attention.out.weight @ m.attention.to_kv.weight[48:]).detach()
        assert float(path.diagonal().mean()) == pytest.approx(-0.4, abs=0.05)
    refused(Model(), UNKNOWN, "mimetic")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"heads": "num_heads"}, "adapter 'wrong': W_q, .* and 'num_heads' is None"),
        ({"query": adapters.Part("to_q")}, "'to_q' leads to no parameter of Own"),
        ({"value": adapters.fused("to_q.weight", "", 5)[2]}, "W_q, W_k and W_v in Own have 48, 48 and 9.6 rows"),
        ({"value": adapters.Part("few")}, "have 48, 48 and 24 rows, W_proj takes 48, and 'n_heads' is 4"),
    ],
)
def test_what_is_wrong_in_an_adapter_is_one_line(wrong, why):
    with registered("wrong", kind(**wrong), **REST):
        refused(Model(), why, "impulse", base="kaiming_uniform", value_proj="mimetic")
    with registered("wrong", kind(), **{**REST, "position": "pos_emb"}):
        refused(Model(), "Model has no absolute position embedding 'pos_emb'", "impulse", base="kaiming_uniform")


def test_rules_of_ones_own_leave_what_other_adapters_say_of_the_type():
    with registered("mine", models=("timm.models.eva.Eva",), parameters={"mine": "keep"}):
        refused(zoo.build("timm EVA rotary"), "rotates queries and keys", "impulse", base="trunc_normal")


# --- what only looks like a known model ------------------------------------------------------------------------------


class Rotating(nn.MultiheadAttention):
    """A subclass with a forward pass of its own may do anything."""

    def forward(self, *args, **kwargs):
        """Not its parent's."""
        return super().forward(*args, **kwargs)


def test_a_subclass_with_a_forward_pass_of_its_own_is_not_taken_for_its_parent():
    refused(nn.Sequential(Rotating(48, 4)), rf"{UNKNOWN} \(Rotating\)", "mimetic")
    Rotating.same_attention = True
    vitinit.initialize(nn.Sequential(Rotating(48, 4)), "mimetic")


class Gain(nn.Module):
    """An RMS norm as several libraries write it."""

    def __init__(self, name):
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.full((8,), 3.0)))


def test_what_else_a_norm_or_a_linear_has_needs_a_rule_and_the_rule_counts():
    norm = type("RMSNorm", (Gain,), {})
    more = nn.Linear(8, 8)
    more.sigma = nn.Parameter(torch.full((1,), 7.0))
    m = nn.Sequential(norm("offset"), norm("scale"), more)
    refused(m, r"no rule for the parameter '0\.offset'", base="kaiming_uniform")
    refused(nn.Sequential(more), r"no rule for the parameter '0\.sigma'", base="kaiming_uniform")
    with registered("ours", models=(nn.Sequential,), parameters={"0.offset": 0.5, "1.scale": 0.25, "*": 2.0}):
        vitinit.initialize(m, base="kaiming_uniform")
    assert [m[0].offset.tolist(), m[1].scale.tolist(), more.sigma.item()] == [[0.5] * 8, [0.25] * 8, 2]
    with registered("ours", models=(nn.Sequential,), parameters={"*": 0.0}):
        alive = nn.Sequential(norm("scale"), more)
        vitinit.initialize(alive, base="kaiming_uniform")
    assert alive[0].scale.tolist() == [1] * 8, "a pattern that does not name a norm"
    norms = nn.Sequential(*map(norm, ("weight", "gamma", "g", "scale", "bias", "beta")))
    vitinit.initialize(norms, base="kaiming_uniform")
    assert [parameter.mean().item() for parameter in norms.parameters()] == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("name", ["vit_base_patch16_siglip_224", "cait_xxs24_224", "xcit_nano_12_p16_224"])
def test_the_advice_of_an_error_leads_to_a_model_that_tells_images_apart(name):
    small = {"depth": 2, "embed_dim": 48, "num_heads": 4, "img_size": 64, "num_classes": 3}
    m = importlib.import_module("timm").create_model(name, **small)
    try:
        vitinit.initialize(m, base="trunc_normal")
    except vitinit.VitinitError as error:
        call = str(error).partition("say how each starts: ")[2]
        adapter = eval(call, {"vitinit": vitinit})
        try:
            assert vitinit.initialize(m, base="trunc_normal").remarks == ()
        finally:
            adapters.unregister(adapter)
    features = m.forward_features(torch.randn(2, 3, 64, 64))
    assert (features[0] - features[1]).abs().max() > 1e-3
    for name, parameter in m.named_parameters():
        assert parameter.any() or name.endswith("bias") or "cls_token" in name, name
