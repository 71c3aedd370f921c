"""Checks of models: nothing stays changed, numbers agree with others, bases are recognised, and what is refused."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
import zoo
from caught import maps_of
from small_models import differing, facts, global_state, state
from torch import Tensor, nn

import vitinit
from vitinit.initializers.check.nearest import kolmogorov_smirnov, looks, structure
from vitinit.initializers.check.report import plot


def images(count: int = 8) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


class Stateful(nn.Module):
    """A model with all that a check could leave changed: batch norm, dropout, half of it frozen, gradients, a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 48, 8, 8)
        self.norm = nn.BatchNorm2d(48)
        self.body = zoo.build("nn.TransformerEncoder").encoder
        self.drop, self.head, self.calls = nn.Dropout(0.5), nn.Linear(48, 10), [0]

    def forward(self, x: Tensor) -> Tensor:
        self.calls[0] += 1
        self.last = x
        return self.head(self.drop(self.body(self.norm(self.stem(x)).flatten(2).mT).mean(1)))


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_model_and_all_global_state_stay_as_they_were(dtype: torch.dtype) -> None:
    model = Stateful().to(dtype).train()
    model.body.eval()
    model.stem.requires_grad_(False)
    model(images().to(dtype)).sum().backward()
    model.head.register_forward_hook(lambda *_: None)
    tensors, slopes = state(model), gradients(model)
    calls, last, given = list(model.calls), model.last, images()
    before, kept = given.clone(), facts(model)
    with torch.no_grad():
        around = global_state()
        vitinit.check(model, given, torch.arange(8) % 10)
        assert global_state() == around
    assert facts(model) == kept
    assert differing(state(model), tensors) == set()
    assert differing(gradients(model), slopes) == set()
    assert (model.calls, model.last is last) == (calls, True)
    assert torch.equal(given, before)


def test_a_model_that_fails_half_way_is_restored() -> None:
    model = zoo.build("timm ViT").train()
    model.blocks[1].register_forward_hook(lambda _, __, out: out[:, :, :7])
    tensors, kept = state(model), facts(model)
    with pytest.raises(vitinit.VitinitError, match="does not take images"):
        vitinit.check(model, images())
    assert differing(state(model), tensors) == set()
    assert facts(model) == kept


@pytest.mark.parametrize(
    "name", ["timm ViT", "torchvision ViT", "timm Swin", "nn.TransformerEncoder", "timm ViT qk-norm"]
)
def test_entropy_and_logits_are_those_of_the_maps_that_the_model_computes(name: str) -> None:
    """The maps are caught in another way; a row of logits is the logarithm of a row of the map, up to a constant."""
    model = zoo.build(name)
    report = vitinit.check(model, images(), torch.arange(8) % 10)
    maps = [one.double() for one in maps_of(model, images())]
    found = [one for one in report.layers if one.entropy is not None]
    assert len(found) == len(maps)
    for layer, map_BHNN in zip(found, maps, strict=True):
        entropy = -(map_BHNN * map_BHNN.clamp(min=1e-300).log()).sum(-1).mean() / math.log(map_BHNN.shape[-1])
        assert layer.entropy == pytest.approx(float(entropy), rel=1e-4)
        if name != "timm Swin":  # whose masks are left out
            std = map_BHNN.log().std(-1, correction=0).mean((0, 2)).max()
            assert layer.logits == pytest.approx(float(std), rel=1e-3)


def test_loss_stream_and_gradient_against_a_run_of_ones_own() -> None:
    """Of so many blocks that the name of one begins with that of another."""
    model = zoo.timm("vision_transformer.VisionTransformer", **{**zoo.SMALL, "depth": 11})().eval()
    labels = torch.arange(8) % 10
    report = vitinit.check(model, images(), labels)
    entered: list[Tensor] = []
    hooks = [block.register_forward_pre_hook(lambda _, given: entered.append(given[0])) for block in model.blocks]
    loss = nn.functional.cross_entropy(model(images()), labels)
    loss.backward()
    for hook in hooks:
        hook.remove()
    assert report.loss == pytest.approx(float(loss), rel=1e-5)
    assert report.chance == pytest.approx(math.log(10))
    for layer, block, x_BND in zip(report.layers, model.blocks, entered, strict=True):
        assert layer.stream == pytest.approx(float(x_BND.pow(2).mean().sqrt()), rel=1e-5)
        square = sum(float(one.grad.double().square().sum()) for one in block.parameters())
        assert layer.gradient == pytest.approx(math.sqrt(square), rel=1e-4)
        cosine = nn.functional.cosine_similarity(x_BND[:4, :, None], x_BND[:4, None], dim=-1)
        count = x_BND.shape[1]
        mean = (cosine.sum((1, 2)) - count) / (count * (count - 1))
        assert layer.cosine == pytest.approx(float(mean.mean()), abs=1e-4)
        values = torch.linalg.svdvals(x_BND[:4].double()).square()
        rank = (values.sum(1).square() / values.square().sum(1)).mean()
        assert layer.rank == pytest.approx(float(rank), rel=1e-4)


def test_the_step_lowers_the_loss_by_what_is_said() -> None:
    model, labels = zoo.build("timm ViT"), torch.arange(8) % 10
    report = vitinit.check(model, images(), labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=report.step)
    nn.functional.cross_entropy(model(images()), labels).backward()
    optimizer.step()
    after = nn.functional.cross_entropy(model(images()), labels)
    assert report.after == pytest.approx(float(after), rel=1e-4)
    assert report.after < report.loss


DRAWN = sorted({one.name for one in vitinit.catalogue("base")} - {"zero", "idinit"})
LIBRARIES = ["timm ViT", "Hugging Face ViT", "torchvision ViT"]


@pytest.mark.parametrize(("base", "name"), [(base, LIBRARIES[i % 3]) for i, base in enumerate(DRAWN)])
def test_every_base_is_recognised(base: str, name: str) -> None:
    model = zoo.build(name)
    vitinit.initialize(model, base=base, seed=3)
    groups = {one.name: one for one in vitinit.check(model, images(), torch.arange(8) % 10).groups}
    for group in ("attention", "MLP"):
        assert base in groups[group].bases, groups[group]
    alike = set(groups["attention"].bases) & set(groups["MLP"].bases) & set(groups["head"].bases)
    assert alike & set(groups["patch embedding"].bases) == {base}


def test_libraries_are_told_apart() -> None:
    """timm's Linears are drawn with std 0.02, and its patch embedding is left to PyTorch; Hugging Face draws both."""
    timm, hugging_face = (
        {one.name: one for one in vitinit.check(zoo.build(name), images()).groups}
        for name in ("timm ViT", "Hugging Face ViT")
    )
    assert "trunc_normal" in timm["MLP"].bases
    assert "trunc_normal" in hugging_face["MLP"].bases
    assert "trunc_normal" in timm["patch embedding"].bases
    assert not hugging_face["patch embedding"].bases
    assert "normal, std 0.02" in hugging_face["patch embedding"].looks


def test_kolmogorov_smirnov_is_that_of_scipy() -> None:
    generator = torch.Generator().manual_seed(0)
    for scale in (1.0, 1.05, 1.5):
        left = torch.randn(3000, generator=generator)
        right = torch.randn(2000, generator=generator) * scale
        expected = scipy.stats.ks_2samp(left.numpy(), right.numpy(), method="asymp")
        gap, likely = kolmogorov_smirnov(left, right)
        assert gap == pytest.approx(expected.statistic, abs=1e-9)
        exact = scipy.stats.kstwobign.sf(math.sqrt(3000 * 2000 / 5000) * gap)
        assert likely == pytest.approx(exact, rel=1e-6)


def test_distributions_in_words() -> None:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(200, 200, generator=generator) * 0.02
    uniform = torch.empty(200, 200).uniform_(-0.05, 0.05, generator=generator)
    cut = nn.init.trunc_normal_(torch.empty(200, 200), std=0.1, a=-0.2, b=0.2, generator=generator)
    name, _, std = looks(normal, "dense").partition(", std ")
    assert name == "normal"
    assert float(std) == pytest.approx(0.02, rel=0.03)
    name, _, bound = looks(uniform, "dense").partition(" within ")
    assert name == "uniform"
    assert float(bound) == pytest.approx(0.05, rel=0.03)
    assert looks(cut, "dense").startswith("normal cut at 2 std")
    orthogonal = nn.init.orthogonal_(torch.empty(30, 50))
    assert [structure(one) for one in (torch.zeros(3, 3), torch.ones(3, 3), torch.eye(9), orthogonal, normal)] == [
        *("zero", "constant", "sparse", "orthogonal", "dense")
    ]


def test_the_page() -> None:
    report = vitinit.check(zoo.build("timm ViT"))
    lines = str(report).splitlines()
    assert "sound" in lines[0]
    assert report.sound
    assert "random images" in report.images
    assert max(map(len, lines)) <= 80
    assert "<script" not in report._repr_html_()
    assert plot([0.0, 1.0, None, 0.5]) == "▁█ ▅"


class Linear(nn.Module):
    """Attention without a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.qkv, self.head = nn.Conv2d(3, 24, 8, 8), nn.Linear(24, 72), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.stem(x).flatten(2).mT).chunk(3, -1)
        return self.head((q @ (k.mT @ v)).mean(1))


class LinearAttentionModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = type("KernelAttention", (Linear,), {})()

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x)


def test_attention_that_it_cannot_see_is_named() -> None:
    report = vitinit.check(LinearAttentionModel(), images())
    assert any("KernelAttention" in one for one in report.unseen)


def test_attention_of_a_kind_that_no_adapter_knows_is_seen() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(24, 24) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return x + torch.softmax(self.q(x) @ self.k(x).mT * 50, dim=-1) @ self.v(x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.one, self.head = nn.Conv2d(3, 24, 8, 8), Own(), nn.Linear(24, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.one(self.stem(x).flatten(2).mT).mean(1))

    keys = {one.key for one in vitinit.check(Model(), images()).findings}
    assert "attention-too-sharp" in keys
