"""Warnings that a run on a batch gives. Limits are formulas, or the range of untouched models with room to spare.

Untouched models are those of `tests/initializers/check/test_untouched.py`,
and 26 of timm and torchvision at full size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from torch import nn

from vitinit.initializers.check.measuring import Measured
from vitinit.initializers.check.nearest import Purpose
from vitinit.initializers.check.report import Finding
from vitinit.initializers.check.watch import AttentionSeen

ABOVE_CHANCE = 0.5
"""Nats over ln K. Normal logits of standard deviation s lose s^2 / 2: this is s = 1."""
UNIFORM = 1e-5
"""Standard deviation of logits. The smallest of untouched models is 4e-4, of CaiT, whose heads talk before the softmax;
of all others 0.0016."""
ALIKE = 1e-4
"""1 - cosine between tokens."""
GROWTH = 5.0
"""Times sqrt(2 L): what a residual stream of L blocks, each with two branches of its own size, grows to. Untouched
models stay below 3.1 times sqrt(2 L) (XCiT 3.1, NesT 2.6, MLP-Mixer 1.4), but for CoaT at 37."""
GRADIENT = 200.0
"""Between the gradients of one parameter in two layers, largest over smallest. Untouched models stay below 50; CoaT,
whose stream grows 500 times, has 140."""
SAME = 1e-6
"""Relative change that counts as none: a few roundings of float32."""
APART = 1e-3
"""Relative change of an output that rounding cannot explain."""
UNTRAINED = re.compile(r"mask_token|(^|\.)pooler\.|logit_scale|temperature|relative_position|rel_pos|rope|freqs")
"""Parameters that classifiers do not use by design."""
SHARP = "logits above sqrt(2 ln N) concentrate on few keys (random energy model); entropy collapse: arXiv 2303.06296"


def run_findings(model: nn.Module, found: Measured, known: dict[str, Purpose], by_hand: bool) -> Iterator[Finding]:
    """Yield the warnings of a run; `by_hand` where the images are given ones."""
    yield from _loss(found)
    if not math.isfinite(found.loss):
        return
    yield from _attention(found)
    yield from _streams(found, by_hand)
    yield from _gradients(found, known)
    yield from _norms(model, found, known)
    yield from _dependences(model, found, known)


def _loss(found: Measured) -> Iterator[Finding]:
    classes = found.logits.shape[1]
    chance = math.log(classes)
    if not math.isfinite(found.loss):
        yield Finding(
            "loss-not-finite",
            "loss",
            "it is NaN or infinite on this batch",
            "mend the tensors above; else look for a layer without a norm, or float16 logits",
            "ours: nothing can be learned from it",
        )
        return
    summed = found.logits.sum(1)
    if classes > 1 and bool((found.logits >= 0).all()) and bool(((summed - 1).abs() < 1e-3).all()):
        yield Finding(
            "softmax-in-model",
            "output",
            "each row is a distribution: the model ends with a softmax, and cross-entropy applies another",
            "return the logits, without softmax",
            "torch.nn.CrossEntropyLoss: the input is expected to contain unnormalised logits",
        )
    elif found.loss > chance + ABOVE_CHANCE:
        spread = float(found.logits.std(1).mean())
        yield Finding(
            "loss-above-chance",
            "head",
            f"loss {found.loss:.3g}, ln {classes} = {chance:.3g}: logits have a standard deviation of {spread:.3g}",
            "a smaller head: nn.init.trunc_normal_(head.weight, std=0.02) or zeros, bias 0; a norm before it",
            "normal logits of standard deviation s lose s^2 / 2 nats; big_vision and timm start the head at 0 or 0.02",
        )


def _attention(found: Measured) -> Iterator[Finding]:
    sharp = [one for one in found.watched.attention if not one.by_place and one.logits > limit(one)]
    if sharp:
        worst = max(sharp, key=lambda one: one.logits / limit(one))
        yield Finding(
            "attention-too-sharp",
            _where([one.module for one in sharp]),
            f"standard deviation of a row of logits {worst.logits:.3g}, above sqrt(2 ln {worst.keys}) = "
            f"{limit(worst):.3g}; entropy {worst.lowest:.2g} of {math.log(worst.keys):.2g}",
            "smaller W_q and W_k (std 0.02, or vitinit.initialize(model, base='trunc_normal')), the factor 1/sqrt(d), "
            "a norm before attention, or qk-norm",
            SHARP,
        )
    named = {one.module for one in sharp}
    collapsed = [
        one
        for one in found.watched.attention
        if one.module not in named and not one.by_place and one.keys > 4 and one.lowest < math.log(2)
    ]
    if collapsed:
        worst = min(collapsed, key=lambda one: one.lowest)
        yield Finding(
            "attention-collapsed",
            _where([one.module for one in collapsed]),
            f"entropy {worst.lowest:.2g} nats, under ln 2: a query sees fewer than two of {worst.keys} keys",
            "look for a token or a bias that is far larger than the others, and for a norm before attention",
            "entropy collapse makes training unstable: arXiv 2303.06296",
        )
    uniform = [one for one in found.watched.attention if one.least < UNIFORM]
    if uniform:
        worst = min(uniform, key=lambda one: one.least)
        yield Finding(
            "attention-uniform",
            _where([one.module for one in uniform]),
            f"standard deviation of a row of logits {worst.least:.2g}: all keys get the same weight",
            "W_q and W_k of std 0.02, and tokens that differ; W_q = 0 is meant so by vitinit's zero_query alone",
            "with W_q = W_k = 0 neither of them gets a gradient; rank collapse: arXiv 2103.03404",
        )


def limit(one: AttentionSeen) -> float:
    """sqrt(2 ln N), above which a row of N normal logits concentrates on few keys."""
    return math.sqrt(2 * math.log(one.keys))


def _streams(found: Measured, by_hand: bool) -> Iterator[Finding]:
    streams = found.watched.streams
    alike = [one for one in streams if 1 - one.cosine < ALIKE]
    if alike:
        yield Finding(
            "tokens-alike",
            _where([one.name for one in alike]),
            f"mean cosine between two tokens {alike[0].cosine:.6f}: they hold the same"
            + (" (or the images are blank)" if by_hand and alike[0] is streams[0] else ""),
            "residual connections around attention, positions that are added, a patch embedding that is not 0",
            "attention alone makes tokens equal with depth: arXiv 2103.03404",
        )
    if len(streams) > 1 and streams[0].size > 0:
        worst = max(streams, key=lambda one: max(one.size, one.after))
        largest = max(worst.size, worst.after)
        growth = largest / streams[0].size
        usual = math.sqrt(2 * len(streams))
        if growth > GROWTH * usual:
            yield Finding(
                "stream-grows",
                worst.name,
                f"root mean square {largest:.3g}, {growth:.3g} times that before the first block "
                f"(usual at {len(streams)} blocks: up to {usual:.2g})",
                "a norm before attention and MLP, smaller ends of branches (method depth_scaled), or layer scale",
                "L blocks of two branches, each of the size that the stream starts with, make it sqrt(2 L) times as "
                "large; arXiv 2304.14802",
            )
    if len(streams) > 1 and any(one.size < 1e-6 * streams[0].size for one in streams[1:]):
        one = next(one for one in streams[1:] if one.size < 1e-6 * streams[0].size)
        yield Finding(
            "stream-vanishes",
            one.name,
            f"root mean square {one.size:.3g}, and {streams[0].size:.3g} before the first block",
            "residual connections, and last matrices of branches that are not 0 where there are none",
            "without a residual a signal shrinks by a factor a layer: arXiv 1502.01852, 2.2",
        )


def _gradients(found: Measured, known: dict[str, Purpose]) -> Iterator[Finding]:
    if not found.gradients:
        return
    unused = [name for name, norm in found.gradients.items() if norm is None and not UNTRAINED.search(name)]
    if unused:
        yield Finding(
            "unused",
            _where(unused),
            "the output does not depend on it: it gets no gradient",
            "use it in forward (are positions added? is a branch left out?), or remove it",
            "torch.autograd: the gradient of a parameter that is not part of the output is None",
        )
    weights = {
        name: norm
        for name, norm in found.gradients.items()
        if norm is not None and name in known and not known[name].bias and known[name].role != "norm"
    }
    bad = [name for name, norm in weights.items() if not math.isfinite(norm)]
    if bad:
        yield Finding(
            "gradient-not-finite",
            _where(bad),
            "its gradient is NaN or infinite",
            "look for a square root or a division at 0, and for activations that overflow",
            "ours: one step makes all weights NaN",
        )
        return
    dead = [name for name, norm in weights.items() if norm == 0]
    if dead:
        yield Finding(
            "gradient-dead",
            _where(dead),
            "its gradient is 0"
            + (" (also with small numbers in place of zeros behind it)" if found.standing_in else ""),
            "look for detach(), no_grad, a zero behind it, or activations (ReLU) that are all off",
            "arXiv 1903.06733 (dying ReLU); zero norms: arXiv 1706.02677, 5.1",
        )
    yield from _between_layers(weights, known, set(dead))
    if found.stepped and found.step is None:
        yield Finding(
            "step-fails",
            "loss",
            f"no step of SGD along the gradient lowers it, down to one that should by {0.1} %",
            "mend what is above; else the loss does not depend on the weights as its gradient says",
            "a small enough step along the negative gradient lowers any smooth loss",
        )


def _between_layers(weights: dict[str, float], known: dict[str, Purpose], dead: set[str]) -> Iterator[Finding]:
    rows: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for name in weights:
        if name not in dead and re.search(r"\d", name):
            rows.setdefault((re.sub(r"\d+", "*", name), known[name].shape), []).append(name)
    worst = 1.0, "", ""
    for names in rows.values():
        low, high = (pick(names, key=lambda one: weights[one]) for pick in (min, max))
        worst = max(worst, (weights[high] / weights[low], high, low))
    ratio, high, low = worst
    if ratio > GRADIENT:
        early = _place(high) < _place(low)
        yield Finding(
            "gradient-explodes" if early else "gradient-vanishes",
            high if early else low,
            f"gradient {weights[high]:.2g} in {high}, {weights[low]:.2g} in {low}: {ratio:.2g} times apart",
            "norms before the branches, residual connections, and weights of one scale in all layers",
            f"at most {GRADIENT:g} times apart in untouched models; arXiv 1502.01852, 2.2 (gradients by layer)",
        )


def _place(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _norms(model: nn.Module, found: Measured, known: dict[str, Purpose]) -> Iterator[Finding]:
    """Yield norms of weight 0 but those behind a branch, which are called last in their block."""
    parameters = dict(model.named_parameters())
    for name in found.zero_norms:
        path = name.rpartition(".")[0]
        home = path.rpartition(".")[0]
        calls = [one for one in found.watched.called if one.rpartition(".")[0] == home]
        calls = [one for one in calls if any(own.startswith(f"{one}.") for own in parameters)]
        calls = [one for one in calls if not SHORTCUT.search(one)]
        scaling = home and calls and f"{calls[-1]}.weight" in known and known[f"{calls[-1]}.weight"].role == "norm"
        if not scaling:
            yield Finding(
                "norm-zero",
                name,
                "weights of 0, so that what follows does not see its input",
                "nn.init.ones_(norm.weight)",
                "norms start at weight 1 and bias 0 in all libraries; at 0 the last norm of a branch alone "
                "(arXiv 1706.02677, 5.1; Swin V2)",
            )


SHORTCUT = re.compile(r"(^|\.)(downsample|shortcut|skip)[^.]*$")
"""Names of what a block may call after its branch, on its own input."""
PLACES = re.compile(r"pos|table|rope|freqs", re.IGNORECASE)
"""Parameters and buffers that may tell places apart."""


def positions_at_zero(model: nn.Module) -> list[str]:
    """Names of trained position embeddings and tables that are 0."""
    named = [(name, one) for name, one in model.named_parameters() if PLACES.search(name) and one.requires_grad]
    return [name for name, one in named if one.numel() and not bool(one.any())]


def _dependences(model: nn.Module, found: Measured, known: dict[str, Purpose]) -> Iterator[Finding]:
    if found.together > APART:
        yield Finding(
            "batch-mixed",
            "output",
            f"an image's output changes by {found.together:.2g} with the other images of its batch",
            "batch_first=True in nn.MultiheadAttention and nn.TransformerEncoder, or reshapes that keep images apart",
            "PyTorch: attention takes tokens x batch x width by default",
        )
    if len(found.features) > 1:
        spread = float(found.features.std(0).norm() / found.features.norm(dim=1).mean().clamp(min=1e-30))
        if spread < SAME:
            yield Finding(
                "output-constant",
                "output",
                f"it differs by {spread:.2g} between images: the model does not see them",
                "look for a patch embedding or norm of zeros, a class token that never attends, equal images",
                "ours: such a model cannot fall below the entropy of the labels",
            )
            return
    held = [name for name, _ in (*model.named_parameters(), *model.named_buffers()) if PLACES.search(name)]
    if found.moved is not None and found.moved < 1e-5 and not held:
        yield Finding(
            "places-unseen",
            "positions",
            f"patches in another order change the output by {found.moved:.2g}: it does not see where they are",
            "positions that are added to the tokens and are not 0: nn.init.trunc_normal_(positions, std=0.02)",
            "attention is equivariant to the order of tokens: arXiv 1706.03762, 3.5",
        )


def _where(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
