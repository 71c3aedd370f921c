"""Each warning on a model that was made ill on purpose, and nothing else on the same model before that."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import zoo
from torch import Tensor, nn

import vitinit

DEEP = {**zoo.SMALL, "depth": 4}


def sound() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return zoo.timm("vision_transformer.VisionTransformer", **DEEP)()


def images(count: int = 8) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def labels(count: int = 8) -> Tensor:
    return torch.arange(count) % 10


def keys(report: vitinit.Check) -> set[str]:
    return {one.key for one in report.findings}


def normal(parameter: Tensor, std: float) -> None:
    parameter.data.normal_(0, std, generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def one_key(model: Any) -> None:
    """All queries see the class token, whose key is far along the one query that the bias gives to all."""
    attn = model.blocks[0].attn
    attn.qkv.weight[:48] = 0
    attn.qkv.bias[:48] = 1.0
    model.cls_token[0, 0] = torch.randn(48, generator=torch.Generator().manual_seed(0)) * 0.1
    seen = model.blocks[0].norm1((model.cls_token + model.pos_embed[:, :1])[0, 0])
    attn.qkv.weight[48:96] = (1.73 / 48 * seen).expand(48, 48)


class Alone(nn.Module):
    """Attention that is nearly uniform, and nothing beside it."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.norm1, self.attn = block.norm1, block.attn

    def forward(self, x: Tensor) -> Tensor:
        return self.attn(self.norm1(x))


class TenTimes(nn.Module):
    """Forwards its input, and multiplies the gradient by ten."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        out = self.block(x)
        return 10 * out - (9 * out).detach()


def each_block(model: Any, wrapper: type[nn.Module]) -> None:
    model.blocks = nn.Sequential(*map(wrapper, model.blocks))


def large_attention_and_mlps(model: Any, qk: float = 1.0, mlp: float = 1.0) -> None:
    for block in model.blocks:
        block.attn.qkv.weight.data[:96] *= qk
        block.mlp.fc2.weight.data *= mlp


def uniform(model: Any) -> None:
    for parameter in model.blocks[2].attn.qkv.parameters():
        parameter.data[:96] = 0


def positions_left_out(model: Any) -> None:
    model._pos_embed = lambda x: torch.cat([model.cls_token.expand(len(x), -1, -1), x], 1)


def mixed(model: Any) -> None:
    """Tokens and batch changed places, as with batch_first=False."""
    block = model.blocks[0]
    block.register_forward_pre_hook(lambda _, given: (given[0].transpose(0, 1),))
    block.register_forward_hook(lambda _, __, out: out.transpose(0, 1))


def copies(model: Any) -> None:
    for block in model.blocks[1:]:
        block.load_state_dict(model.blocks[0].state_dict())


def weight(name: str, change: Callable[[Tensor], object]) -> Callable[[Any], object]:
    return lambda model: change(model.get_parameter(name).data)


FC1 = "blocks.1.mlp.fc1.weight"
ILL: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "NaN": (weight(FC1, lambda w: w[3, 5].fill_(math.nan)), "not-finite", FC1),
    "constant": (weight(FC1, lambda w: w.fill_(0.02)), "constant", FC1),
    "zero": (weight(FC1, lambda w: w.fill_(0.0)), "zero", FC1),
    "equal rows": (weight(FC1, lambda w: w.copy_(w[:1].clone().expand_as(w))), "equal-rows", FC1),
    "unused memory": (weight(FC1, lambda w: w.fill_(1e-41)[0, 0].fill_(3e-42)), "uninitialised", FC1),
    "outlier": (weight(FC1, lambda w: w[4, 4].fill_(50.0)), "outliers", FC1),
    "PyTorch's default left": (lambda m: m.blocks[1].mlp.fc2.reset_parameters(), "odd-one-out", "blocks.1.mlp.fc2"),
    "one large tensor": (lambda m: normal(m.blocks[2].attn.proj.weight, 0.3), "odd-one-out", "blocks.2.attn.proj"),
    "copied layers": (copies, "copies", "blocks.1"),
    "positions of std 1": (lambda m: normal(m.pos_embed, 1.0), "position-too-large", "pos_embed"),
    "head of std 1": (lambda m: normal(m.head.weight, 1.0), "loss-above-chance", "head"),
    "norm at zero": (weight("blocks.1.norm1.weight", torch.zero_), "norm-zero", "blocks.1.norm1.weight"),
    "last norm at zero": (weight("norm.weight", torch.zero_), "norm-zero", "norm.weight"),
    "eps of a norm": (lambda m: setattr(m.norm, "eps", 0.1), "norm-eps", "norm"),
    "sharp attention": (lambda m: large_attention_and_mlps(m, qk=40), "attention-too-sharp", "blocks.0.attn"),
    "uniform attention": (uniform, "attention-uniform", "blocks.2.attn"),
    "one key": (one_key, "attention-collapsed", "blocks.0.attn"),
    "no residual": (lambda m: each_block(m, Alone), "tokens-alike", "blocks."),
    "growth": (lambda m: large_attention_and_mlps(m, mlp=300), "stream-grows", "blocks."),
    "detached": (
        lambda m: m.blocks[1].mlp.register_forward_hook(lambda _, __, out: out.detach()),
        "unused",
        "blocks.1.",
    ),
    "gradients times ten": (lambda m: each_block(m, TenTimes), "gradient-explodes", "blocks.0"),
    "softmax": (
        lambda m: m.head.register_forward_hook(lambda _, __, out: out.softmax(-1)),
        "softmax-in-model",
        "output",
    ),
    "no positions": (lambda m: setattr(m, "pos_embed", None), "places-unseen", "positions"),
    "positions not added": (positions_left_out, "unused", "pos_embed"),
    "batch and tokens": (mixed, "batch-mixed", "output"),
    "patch embedding at zero": (weight("patch_embed.proj.weight", torch.zero_), "output-constant", "output"),
}


@pytest.fixture(scope="module")
def before() -> vitinit.Check:
    return vitinit.check(sound(), images(), labels(), classes=10)


def test_a_sound_model_has_no_warning(before: vitinit.Check) -> None:
    assert before.sound, before.findings


@pytest.mark.parametrize("name", ILL)
def test_what_is_ill_is_named(name: str) -> None:
    make_ill, key, where = ILL[name]
    model = sound()
    make_ill(model)
    report = vitinit.check(model, images(), labels(), classes=10)
    found = [one for one in report.findings if one.key == key]
    assert found, report.findings
    assert any(one.where.startswith(where) for one in found), found
    assert all(one.mend and one.source for one in report.findings)
    assert key in str(report).splitlines()[0] + str(report).splitlines()[1]


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ((images() * 60 + 128).clamp(0, 255), "images-not-normalised"),
        ((images() * 60 - 128).clamp(-255, 0), "images-not-normalised"),
        ((images() * 0.2 + 0.5).clamp(0, 1), "images-not-normalised"),
        (torch.ones(8, 3, 32, 32) * torch.arange(1, 9)[:, None, None, None] / 8, "images-constant"),
        (images(1).expand(8, -1, -1, -1), "images-equal"),
        (images().masked_fill(images() > 3, math.nan), "images-not-finite"),
    ],
)
def test_images_that_no_model_can_learn_from(given: Tensor, key: str) -> None:
    assert key in keys(vitinit.check(sound(), given, labels()))


@pytest.mark.parametrize("wrong", [labels() + 1 + 2, labels() - 1])
def test_labels_out_of_range(wrong: Tensor) -> None:
    assert "labels-out-of-range" in keys(vitinit.check(sound(), images(), wrong))


def test_a_number_of_classes_that_the_model_does_not_have() -> None:
    assert "classes" in keys(vitinit.check(sound(), images(), labels(), classes=100))


def test_a_dead_layer_behind_a_live_one() -> None:
    """ReLU that no input switches on: in the graph, and without a gradient."""
    model = sound()
    model.blocks[1].mlp.act = nn.ReLU()
    with torch.no_grad():
        model.blocks[1].mlp.fc1.bias.fill_(-100.0)
    report = vitinit.check(model, images(), labels())
    assert any(one.key == "gradient-dead" and one.where.startswith("blocks.1.mlp.fc1") for one in report.findings)


def test_a_loss_that_no_step_lowers() -> None:
    """The gradient has the wrong sign."""

    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return -gradient

    model = sound()
    model.register_forward_hook(lambda _, __, out: Turned.apply(out))
    assert "step-fails" in keys(vitinit.check(model, images(), labels()))
