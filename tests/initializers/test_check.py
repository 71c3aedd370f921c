"""`vitinit.check` on models made ill on purpose, on the same in health, and on untouched ones of many libraries."""

import math
import re
from functools import partial
from pathlib import Path
from types import MethodType

import pytest
import torch
import yaml
import zoo
from small_models import differing, facts, global_state, state
from small_models import images as small_images
from torch import nn

import vitinit
from vitinit.initializers.streams import stream


def sound(**changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return zoo.timm(zoo.TABLE["timm ViT"] | {"depth": 4, **changes})


images = partial(small_images, 8, seed=1)


def normal(parameter, std):
    parameter.data.normal_(0, std, generator=torch.Generator().manual_seed(2))


class Alone(nn.Module):
    """Attention that is nearly uniform, and nothing beside it."""

    def __init__(self, block):
        super().__init__()
        self.norm1, self.attn = block.norm1, block.attn

    def forward(self, x):
        return self.attn(self.norm1(x))


class Scaled(nn.Module):
    """Block that adds nothing at first, as in ReZero."""

    def __init__(self, block):
        super().__init__()
        self.block, self.alpha = block, nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x + self.alpha * (self.block(x) - x)


class ByName(nn.Sequential):
    """Blocks that are given their tokens by name."""

    def forward(self, x):
        for block in self:
            x = block(x=x)
        return x


def alone(model):
    model.blocks = nn.Sequential(*map(Alone, model.blocks))


def ten_times(model):
    """Each block forwards its output, and multiplies the gradient by ten."""
    for block in model.blocks:
        block.register_forward_hook(lambda _, __, out: 10 * out - (9 * out).detach())


def scaled(qk=1.0, mlp=1.0):
    def change(model):
        for block in model.blocks:
            block.attn.qkv.weight.data[:96] *= qk
            block.mlp.fc2.weight.data *= mlp

    return change


def query_and_key_at_zero(model):
    for parameter in model.blocks[2].attn.qkv.parameters():
        parameter.data[:96] = 0


def positions_left_out(model):
    def left_out(own, x):
        return torch.cat([own.cls_token.expand(len(x), -1, -1), x], 1)

    model._pos_embed = MethodType(left_out, model)


def mixed(model):
    """Tokens and batch changed places, as with batch_first=False."""
    block = model.blocks[0]
    block.register_forward_pre_hook(lambda _, given: (given[0].transpose(0, 1),))
    block.register_forward_hook(lambda _, __, out: out.transpose(0, 1))


def softmaxes(*dims):
    def forward(own, x, **_):
        query, key, value = own.qkv(x).unflatten(-1, (3, own.num_heads, -1)).permute(2, 0, 3, 1, 4)
        maps = query @ key.mT * own.scale
        for dim in dims:
            maps = maps.softmax(dim)
        return own.proj((maps @ value).transpose(1, 2).flatten(2))

    def change(model):
        for block in model.blocks:
            block.attn.forward = MethodType(forward, block.attn)

    return change


def one_residual_missing(model):
    block = model.blocks[2]
    block.forward = lambda x: (lambda y: y + block.mlp(block.norm2(y)))(block.attn(block.norm1(x)))


def weight(name, change):
    return lambda model: change(model.get_parameter(name).data)


def hooked(path, change):
    return lambda model: model.get_submodule(path).register_forward_hook(lambda _, __, out: change(out))


FC1 = "blocks.1.mlp.fc1.weight"
ILL = {
    "NaN": weight(FC1, lambda w: w[3, 5].fill_(math.nan)),
    "constant": weight(FC1, lambda w: w.fill_(0.02)),
    "zero": weight(FC1, torch.zero_),
    "PyTorch's default left": lambda m: m.blocks[1].mlp.fc2.reset_parameters(),
    "head of std 0.65": lambda m: normal(m.head.weight, 0.65),
    "norm at zero": weight("blocks.1.norm1.weight", torch.zero_),
    "sharp attention": scaled(qk=40),
    "W_q and W_k at zero": query_and_key_at_zero,
    "no residual": alone,
    "growth": scaled(mlp=300),
    "positions not added": positions_left_out,
    "gradients times ten": ten_times,
    "softmax at the end": lambda m: (vitinit.initialize(m, base="mae"), hooked("head", lambda out: out.softmax(-1))(m)),
    "batch and tokens": mixed,
    "dropout in evaluation": hooked("blocks.0", lambda out: nn.functional.dropout(out, 0.1)),
    "softmax twice": softmaxes(-1, -1),
    "softmax over queries": softmaxes(-2),
    "one residual missing": one_residual_missing,
    "one norm missing": lambda m: setattr(m.blocks[2], "norm1", nn.Identity()),
    "equal layers": lambda m: m.blocks[2].load_state_dict(m.blocks[1].state_dict()),
    "a frozen block": lambda m: m.blocks[1].requires_grad_(False),
}
SAID = yaml.safe_load(Path(__file__).with_name("ill.yaml").read_bytes())
HEALTHY = {
    "as it is": lambda model: model.train(),
    "head at zero": weight("head.weight", torch.zero_),
    "branches at zero": lambda model: vitinit.initialize(model, "zero_branch"),
    "scales of branches at zero": lambda model: setattr(model, "blocks", nn.Sequential(*map(Scaled, model.blocks))),
    "query at zero": lambda model: vitinit.initialize(model, "zero_query"),
    "only the head is trained": lambda model: (model.requires_grad_(False), model.head.requires_grad_()),
    "fixed positions": lambda model: model.pos_embed.requires_grad_(False),
    "blocks called by name": lambda model: setattr(model, "blocks", ByName(*model.blocks)),
    "a norm before a pooling": lambda model: setattr(model.blocks[2], "norm1", nn.Sequential(model.blocks[2].norm1)),
    "no classifier": lambda model: (model.reset_classifier(0), model.norm.weight.data.mul_(9)),
    **{
        f"base {base.name}": lambda model, name=base.name: vitinit.initialize(model, base=name)
        for base in vitinit.catalogue("base")
        if base.name != "sinusoidal"  # sharp attention
    },
}


@pytest.mark.parametrize("name", ILL)
def test_what_is_ill_is_found(name):
    model, (key, said) = sound(), SAID[name]
    ILL[name](model)
    report = vitinit.check(model, images())
    warnings = [f"{finding.where}: {finding.what}" for finding in report.findings if finding.key == key]
    assert any(warning.startswith(said) for warning in warnings), report.findings
    assert not report.sound
    assert all(f"usually helps: {finding.mend}" in str(report) for finding in report.findings)


def assert_numbers(model, key, *expected):
    """Compare the first numbers of the warning, which have three digits or two."""
    (warning, *_) = (finding for finding in vitinit.check(model, images()).findings if finding.key == key)
    numbers = [float(number) for number in re.findall(r"(?<!\w)\d+\.?\d*(?:e[+-]\d+)?", warning.what)]
    assert numbers[: len(expected)] == pytest.approx(expected, rel=0.06 if key == "gradient-uneven" else 6e-3)


def test_the_numbers_of_warnings_are_those_of_plain_torch():
    head, sharp, grown, uneven = (sound().eval() for _ in range(4))
    normal(head.head.weight, 0.65)
    logits, labels = head(images()), torch.randint(10, (8,), generator=stream(0, "check/labels"))
    loss = -logits.log_softmax(1).mean().item()
    assert_numbers(head, "loss-above-chance", loss, 10, math.log(10), logits.std(1).mean().item())
    scaled(qk=15)(sharp)  # beyond, keys are taken for masked
    x, attention = sharp._pos_embed(sharp.patch_embed(images())), sharp.blocks[0].attn
    query, key, _ = attention.qkv(sharp.blocks[0].norm1(x)).unflatten(-1, (3, 4, 12)).permute(2, 0, 3, 1, 4)
    rows = (query @ key.mT / 12**0.5).std(-1, correction=0)
    deviation, limit = rows.mean((0, 2)).max().item(), math.sqrt(2 * math.log(17))
    assert_numbers(sharp, "attention-too-sharp", deviation, 2, 17, limit)
    scaled(mlp=300)(grown)
    x = grown._pos_embed(grown.patch_embed(images()))
    assert_numbers(grown, "stream-grows", (grown.blocks[:2](x).norm() / x.norm()).item(), 4, 2.8)
    ten_times(uneven)
    nn.functional.cross_entropy(uneven(images()), labels).backward()
    assert_numbers(uneven, "gradient-uneven", uneven.blocks[0].attn.qkv.weight.grad.norm().item())


def test_what_a_method_set_is_meant_while_it_stays_tensor_by_tensor():
    model = sound(init_values=0.1)
    vitinit.initialize(model, "mimetic", alpha_qk=9.0, beta_qk=9.0)
    vitinit.initialize(model, layer_scale=0.5)
    assert vitinit.check(model, images()).sound
    model.blocks[1].attn.qkv.weight.data[:96] *= 40  # each query attends to one key
    (finding,) = vitinit.check(model, images()).findings
    assert (finding.key, finding.where) == ("attention-too-sharp", "blocks.1")


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_healthy_gets_no_warning(name):
    model = sound()
    HEALTHY[name](model)
    assert vitinit.check(model, images()).sound


@pytest.mark.parametrize("name", zoo.ZOO)
def test_untouched_models_get_no_warning_but_those_that_are_true_of_them(name):
    # the tests set the head to std 1, and PyTorch makes the layers of an encoder as copies
    true = {"torchvision ViT": {"loss-above-chance"}, "nn.TransformerEncoder": {"equal-layers"}}
    assert {finding.key for finding in vitinit.check(zoo.build(name).train(), images()).findings} == true.get(
        name, set()
    )


def test_the_loss_is_that_of_the_model_and_the_page_begins_with_it():
    model, given = sound().eval(), images()
    loss = -model(given).log_softmax(1).mean()
    report = vitinit.check(model, given)
    assert (report.loss, report.classes) == (pytest.approx(loss.item(), rel=1e-5), 10)
    assert str(report).splitlines() == [
        "VisionTransformer: sound at the start",
        f"8 images of 3 x 32 x 32: loss {loss:.3f}, ln 10 = 2.303.",
    ]
    assert vitinit.check(model, given[:1]).sound, "one image has nobody to differ from"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_model_and_all_global_state_stay_as_they_were(dtype):
    """Batch norms, modes, frozen parts, gradients, hooks and what a module keeps of a forward pass."""
    model = zoo.build("timm ConvMixer").to(dtype).train()
    model.blocks[0].eval().requires_grad_(False)
    model.head.register_forward_hook(lambda module, _, out: setattr(module, "last", out))
    model(images().to(dtype)).sum().backward()
    tensors, gradient, last, kept = state(model), model.head.weight.grad.clone(), model.head.last, facts(model)
    given, around = images(), global_state()
    vitinit.check(model, given)
    assert (facts(model), global_state()) == (kept, around)
    assert differing(state(model), tensors) == set()
    assert torch.equal(model.head.weight.grad, gradient)
    assert model.head.last is last
    assert torch.equal(given, images())
