"""Is a model sound at the start? Values of its tensors, one pass forward and back, and what its output depends on.

Limits are formulas, or the range of untouched models with room to spare.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitinit.initializers.attention import evaluated
from vitinit.initializers.errors import VitinitError, count, plain
from vitinit.initializers.measure import Softmaxes
from vitinit.initializers.streams import stream
from vitinit.initializers.transaction import Meant, fingerprint, named_tensors, scratch, still_meant
from vitinit.initializers.whole_model import classifiers, draw_normal_

GIVEN, DRAWN = 16, 8
"""Images that are looked at: of those given, and random ones where none are."""
SIDE = 224
"""Side of random images where no module of the model gives one."""
ABOVE_CHANCE = 0.5
"""Nats over ln K. Normal logits of standard deviation s lose s^2 / 2: this is s = 1."""
MASKED = 1e-26
"""Weights below it, such as those that Swin masks by -100, are left out of a row."""
SATURATED = 0.99
"""Mean largest weight of a row of attention in which no other key is left to measure."""
ALIKE = 1e-4
"""1 - cosine between tokens."""
GROWTH = 5.0
"""Times sqrt(2 L): what a residual stream of L blocks, each with two branches of its own size, grows to. Untouched
models stay below 3.1 times sqrt(2 L), but for CoaT at 37."""
GRADIENT = 200.0
"""Between the gradients of one parameter in two layers, largest over smallest. Untouched models stay below 50; CoaT,
whose stream grows 500 times, has 140."""
FACTOR = 1.5
"""Scale by depth, as timm's BEiT and GPT-2 have it, changes from one layer to the next by up to sqrt(2)."""
LOST, KEPT = 0.1, 0.5
"""Mean cosine between what two blocks in a row are given: without a residual connection, and in most blocks."""
ROUNDING = 1e-6
"""Relative difference of outputs that are the same; layer scales of 1e-5, as CaiT's, leave more than that."""
APART = 1e-3
"""Relative change of an output that rounding cannot explain."""
NOISE = 0.02
"""Standard deviation of the noise that replaces matrices of zeros while gradients are measured."""
UNTRAINED = re.compile(r"mask_token|(^|\.)pooler\.|logit_scale|temperature|relative_position|rel_pos|rope|freqs")
"""Parameters that classifiers do not use by design."""
PLACES = re.compile(r"pos|table|rope|freqs", re.IGNORECASE)
"""Parameters that may tell places apart."""
ADVICE: dict[str, str] = json.loads(Path(__file__).with_name("advice.json").read_text())
"""By key of a finding, the usual remedy. Sources: docs/check.md."""


@dataclass(frozen=True)
class Finding:
    """Warning of a check."""

    key: str
    """Short name of the kind of trouble, such as `tokens-alike`; it stays between versions."""
    where: str
    """Tensor or layer."""
    what: str
    """Measurement, beside the limit that it passes."""
    mend: str
    """Usual remedy."""


@dataclass(frozen=True)
class Check:
    """Report of `check`: `print` shows a page; `findings` are empty for a sound model."""

    model: str
    images: str
    """Images that the measurement used, in words."""
    classes: int
    loss: float
    """Cross-entropy at the start, mean over all labels."""
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """True where there is no warning."""
        return not self.findings

    def __str__(self) -> str:
        """Return the page: verdict, images and loss, warnings."""
        warnings, keys = count(len(self.findings), "warning"), ", ".join(finding.key for finding in self.findings)
        return "\n".join(
            [
                f"{self.model}: {f'{warnings}: {keys}' if keys else 'sound at the start'}",
                f"{self.images}: loss {self.loss:.3f}, ln {self.classes} = {math.log(self.classes):.3f}.",
                *(f"{line.key}: {line.where}: {line.what}; usually helps: {line.mend}" for line in self.findings),
            ]
        )


Warning = tuple[str, str, str]
"""Key, where and what."""
Warnings = Iterator[Warning]


class Tokens(NamedTuple):
    """Tokens that a block is given."""

    size: float
    """Root mean square."""
    spread: float
    """Share of the mean square that differs between the tokens of an image."""
    cosine: float
    """Mean cosine with what the block before in the row was given; NaN where that had another shape."""


def check(model: nn.Module, batch: Tensor | None = None, *, image_size: int | None = None) -> Check:
    """Check whether a classifier of images is sound before it is trained, and say what its start is.

    It looks at values of tensors, and runs the model on one batch: loss, attention logits, tokens and gradients by
    layer. Attention is seen where PyTorch computes a softmax, so in any model. It takes seconds to a minute.

    The model is left as it was, bit for bit: weights, buffers, gradients, modes, hooks, `requires_grad` and global
    random state. Numbers are those of float32, without dropout, with batch statistics where there are batch norms.

    Args:
        model: on any device, before it is compiled, sharded or wrapped for several processes.
        batch: images, B x C x H x W, as in training; the first 16 are looked at. None: random ones.
        image_size: side of random images; by default the model's own, or 224.

    Returns:
        A page to print, with `findings` (warnings); `sound` without any.

    Raises:
        VitinitError: one line: why the model cannot be run, and what can be done.
    """
    if batch is not None and not (isinstance(batch, Tensor) and batch.ndim == 4 and len(batch)):
        raise VitinitError("batch must be a tensor of images, B x C x H x W, B at least 1")
    with (
        scratch(model) as copied,
        torch.random.fork_rng(devices={parameter.device for parameter in copied.parameters() if parameter.is_cuda}),
        torch.enable_grad(),
    ):
        meant = still_meant(model)
        images_BCHW = _drawn_images(copied, image_size) if batch is None else batch[:GIVEN].detach().float()
        images_BCHW = images_BCHW.to(next(copied.parameters(), images_BCHW).device)
        logits, tokens, on_attention = _watched(
            _of_batch_statistics(copied), images_BCHW, [name for name, mark in meant.items() if mark.attention]
        )
        classes, heads = logits.shape[1], classifiers(copied)
        labels_B = torch.randint(classes, (len(logits),), generator=stream(0, "check/labels")).to(logits.device)
        loss = float(F.cross_entropy(logits, torch.full_like(logits, 1 / classes)))
        warnings = [*_tensors(copied, heads, meant), *_norms(copied), *_streams(tokens)]
        judged = not {f"{head}.weight" for head in heads} <= meant.keys()
        warnings += [*_loss(logits, loss, judged), *on_attention]
        _stand_in(copied)
        again = _run(_of_batch_statistics(copied), images_BCHW)
        if len(again) > 1 and torch.allclose(again, again[:1], rtol=ROUNDING):
            warnings.append(("output-alike", "output", "it is the same for all images"))
        if again.requires_grad:
            F.cross_entropy(again, labels_B).backward()
        if math.isfinite(loss):
            warnings += [*_gradients(copied), *_dependences(copied.eval(), images_BCHW)]
    places = defaultdict(list)
    for key, where, what in warnings:
        places[key].append((where, what))
    findings = tuple(
        Finding(key, f"{where} and {len(more)} more" if more else where, what, ADVICE[key])
        for key, [(where, what), *more] in places.items()
    )
    images = f"{len(images_BCHW)} {'random ' * (batch is None)}images of {' x '.join(map(str, images_BCHW.shape[1:]))}"
    return Check(type(model).__name__, images, classes, loss, findings)


# --- passes ----------------------------------------------------------------------------------------------------------


def _drawn_images(model: nn.Module, size: int | None) -> Tensor:
    """Random images, coarse and fine, from -1 to 1, of the size that the model names."""
    channels = next((module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d)), 3)
    named = (getattr(module, name, None) for module in model.modules() for name in ("img_size", "image_size"))
    side = size or next(filter(None, named), SIDE)
    height, width = side if isinstance(side, tuple | list) else (side, side)
    generator = stream(0, "check/images")
    fine = torch.rand(DRAWN, channels, height, width, generator=generator)
    coarse = torch.rand(DRAWN, channels, max(2, height // 16), max(2, width // 16), generator=generator)
    return fine + F.interpolate(coarse, (height, width), mode="bilinear") - 1


def _run(model: nn.Module, images_BCHW: Tensor) -> Tensor:
    """Return the logits, B x K, float32."""
    try:
        out = model(images_BCHW)
    except Exception as error:  # code of anyone's
        raise VitinitError(
            f"{type(model).__name__} does not take images of {' x '.join(map(str, images_BCHW.shape[1:]))}: "
            f"{plain(str(error) or type(error).__name__, 200)}; give a batch or image_size"
        ) from None
    out = getattr(out, "logits", out)
    if isinstance(out, tuple | list):
        out = out[0]
    if not isinstance(out, Tensor) or out.ndim != 2 or out.shape[1] < 2:
        raise VitinitError(
            f"{type(model).__name__} returns no logits of B x K, K > 1, as a classifier with a head does"
        )
    return out.float()


def _rows(model: nn.Module) -> list[list[str]]:
    """Return the names of a model's blocks: modules of one class in a row, the innermost such rows."""
    rows: dict[str, list[str]] = {}
    for path, row in model.named_modules():
        if not isinstance(row, nn.Sequential | nn.ModuleList) or len({type(block) for block in row}) != 1:
            continue
        if len(row) > 1 and any(row[0].children()):
            rows = {outer: rows[outer] for outer in rows if not path.startswith(f"{outer}.".lstrip("."))}
            rows[path] = [f"{path}.{name}".lstrip(".") for name, _ in row.named_children()]
    return list(rows.values())


def _of_batch_statistics(model: nn.Module) -> nn.Module:
    """Return it in evaluation mode but for its batch norms, without what it has kept of its weights (LeViT)."""
    model.train().eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    return model


def _distributions(logits: Tensor) -> bool:
    """Return True where rows are positive and add up to 1."""
    return bool((logits >= 0).all() and ((logits.sum(-1) - 1).abs() < 1e-3).all())


@torch.no_grad()
def _watched(
    model: nn.Module, images_BCHW: Tensor, set_by_method: Sequence[str]
) -> tuple[Tensor, dict[str, Tokens], list[Warning]]:
    """Return the logits of one pass, the tokens that each block is given, and what is wrong with its attention.

    Nothing is said of attention whose W_q or W_k a method set.
    """
    current, previous, before = "model", "", torch.empty(0)
    tokens: dict[str, Tokens] = {}
    warnings = []

    def enter(block: str, _: Any, inputs: Any, named: Any) -> None:
        nonlocal current, previous, before
        current = block
        x = next((value.detach().float() for value in (*inputs, *named.values()) if isinstance(value, Tensor)), before)
        if x.ndim == 4 and x.shape[1] == x.shape[2]:  # Swin keeps its tokens on their grid
            x = x.flatten(1, 2)
        if x.ndim == 3 and x.shape[1] > 1:
            square = float(x.square().mean())
            spread = float((x - x.mean(1, keepdim=True)).square().mean())
            in_row = before.shape == x.shape and previous.rpartition(".")[0] == block.rpartition(".")[0]
            cosine = float(F.cosine_similarity(before, x, dim=-1).mean()) if in_row else math.nan
            tokens.setdefault(block, Tokens(square**0.5, spread / max(square, 1e-30), cosine))
            previous, before = block, x

    def leave(*_: Any) -> None:
        nonlocal current
        current = "model"

    def say(key: str, what: str) -> None:
        warnings.append((key, current, what))

    def see(logits: Tensor, attention: Tensor, dim: int) -> None:
        keys = logits.shape[-1]
        meant = any(current == "model" or name.startswith(f"{current}.") for name in set_by_method)
        if logits.ndim < 3 or keys == 1 or meant:
            return
        if dim != -1:
            if keys == logits.shape[-2]:
                say("softmax-axis", f"it is not over the {keys} keys of a query, but over another dimension")
            return
        rows = logits.float().masked_fill(attention < MASKED, torch.nan)
        std = float((rows - rows.nanmean(-1, keepdim=True)).square().nanmean(-1).sqrt().mean(-1).mean(0).max())
        std = math.inf if float(attention.amax(-1).mean()) > SATURATED else std
        limit = math.sqrt(2 * math.log(keys))
        if _distributions(logits):
            say("softmax-twice", "its logits are a softmax already: rows of positive numbers with sum 1")
        elif std > limit and not torch.equal(logits[0], logits[-1]):  # which depend on places alone
            what = f"standard deviation of a row of logits {std:.3g}, above sqrt(2 ln {keys}) = {limit:.3g}"
            say("attention-too-sharp", what)
        elif std < 1e-6:
            say("attention-uniform", "all its logits are equal: neither W_q nor W_k gets a gradient")

    for block in chain.from_iterable(_rows(model)):
        module = model.get_submodule(block)
        module.register_forward_pre_hook(partial(enter, block), with_kwargs=True)
        module.register_forward_hook(leave)
    with Softmaxes(see):
        return _run(model, images_BCHW), tokens, warnings


@torch.no_grad()
def _stand_in(model: nn.Module) -> None:
    """Replace zeros that training changes: matrices by small noise, scales of branches by 1.

    A batch norm scales a branch, as in ResNets; other norms where several are zero.
    """
    generator, norms = stream(0, "check/zeros"), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        module = model.get_submodule(name.rpartition(".")[0])
        if not parameter.requires_grad or name.endswith("bias") or parameter.any():
            continue
        if parameter.ndim > 1 and isinstance(module, nn.Linear | nn.Conv2d | nn.MultiheadAttention):
            draw_normal_(parameter, NOISE, generator)
        elif parameter.ndim < 2 and _is_norm(module) and not isinstance(module, nn.modules.batchnorm._BatchNorm):
            norms.append(parameter)
        elif parameter.ndim < 2:
            parameter.fill_(1.0)
    for parameter in norms if len(norms) > 1 else ():
        parameter.fill_(1.0)


@torch.no_grad()
def constant(model: nn.Module) -> bool:
    """Return True if what the classifier is given is the same for two images; False where the model does not run."""
    given = []
    heads = map(model.get_submodule, classifiers(model))
    hooks = [head.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0])) for head in heads]
    with evaluated(model, hooks), suppress(Exception):
        out = model(_drawn_images(model, None)[:2].to(next(model.parameters())))
        given = given or [getattr(out, "logits", out)]
        return all(torch.allclose(first, second, rtol=ROUNDING) for first, second in given)
    return False


# --- warnings --------------------------------------------------------------------------------------------------------


def _is_norm(module: nn.Module) -> bool:
    """Return True for a norm with parameters; a ConvNormAct has none of its own."""
    return "norm" in type(module).__name__.lower() and any(True for _ in module.parameters(recurse=False))


def _pattern(name: str) -> str:
    """Return the name of a parameter without the numbers of blocks."""
    return re.sub(r"\b\d+\b", "*", name)


def _tensors(model: nn.Module, heads: Collection[str], meant: dict[str, Meant]) -> Warnings:
    """Yield what is wrong with single tensors, then with those that differ from their neighbours in depth.

    Where the classifier alone is trained, nothing is said of the others: that is how a frozen model is tested.
    """
    for name, tensor in named_tensors(model).items():
        if bad := int(tensor.isnan().sum()):
            yield "not-finite", name, f"{bad:,} of {tensor.numel():,} numbers are NaN"
    parameters = {name: parameter for name, parameter in model.named_parameters() if not PLACES.search(name)}
    matrices = {
        name: parameter
        for name, parameter in parameters.items()
        if max(parameter.shape, default=1) < parameter.numel() and parameter.is_floating_point()
    }
    trained = [name for name in matrices if matrices[name].requires_grad and name.rpartition(".")[0] not in heads]
    for name, parameter in parameters.items() if trained else ():
        zero_scale = not name.endswith("bias") and not parameter.any()
        as_meant = parameter.requires_grad or (name in meant and meant[name].untrained)
        if not as_meant and (name in matrices or zero_scale):
            yield "frozen", name, f"requires_grad is False, and {len(trained)} other weights are trained"
    rows = defaultdict(list)
    first: dict[Any, str] = {}
    for name in [name for name in matrices if name not in meant]:
        value = matrices[name].detach()
        row = _pattern(name), value.shape
        equal = first.setdefault((row, fingerprint(value)), name)
        if equal != name and len(value.unique()) > 2:
            yield "equal-layers", name, f"it holds the numbers of {equal}"
        if value.count_nonzero() > value.numel() / 2 and (copies := len(value) - len(value.flatten(1).unique(dim=0))):
            yield "equal-rows", name, f"{copies:,} of {len(value):,} rows are copies"
        elif value.numel() >= 64:
            rows[row].append((name, float(value.std()) + 1e-12))
    for deviations in rows.values():
        for index, (name, std) in enumerate(deviations if len(deviations) > 2 else []):
            nearest = sorted(range(len(deviations)), key=lambda other: abs(other - index))
            low, high = sorted(deviations[other][1] for other in nearest[1:3])
            if high < FACTOR * low and not low / FACTOR <= std <= high * FACTOR:
                yield "odd-one-out", name, f"its standard deviation is {std:.3g}, in its neighbours in depth {low:.3g}"


def _loss(logits: Tensor, loss: float, judged: bool) -> Warnings:
    chance = math.log(logits.shape[1])
    if not math.isfinite(loss):
        yield "not-finite", "loss", "it is NaN or infinite on this batch"
    elif _distributions(logits):
        yield "softmax-in-model", "output", "each row is a distribution: cross-entropy applies another softmax"
    elif judged and loss > chance + ABOVE_CHANCE:
        spread = f"logits have a standard deviation of {float(logits.std(1).mean()):.3g}"
        yield "loss-above-chance", "head", f"loss {loss:.3g}, ln {logits.shape[1]} = {chance:.3g}: {spread}"


def _norms(model: nn.Module) -> Warnings:
    """Yield the one block of a row that has something else in place of a norm that all others have."""
    for blocks in _rows(model):
        modules = [dict(model.get_submodule(block).named_modules()) for block in blocks]
        for name in sorted(set.intersection(*map(set, modules))) if len(blocks) > 2 else ():
            others = [number for number, own in enumerate(modules) if not _is_norm(own[name])]
            # beside a norm may be a pooling, as where CoAtNet's stages begin
            if len(others) == 1 and not any(map(_is_norm, modules[others[0]][name].modules())):
                yield "odd-one-out", blocks[others[0]], f"it has no {name}, as all others in the row have"


def _streams(tokens: dict[str, Tokens]) -> Warnings:
    start, usual = next((given.size for given in tokens.values()), 0.0), math.sqrt(2 * len(tokens))
    between = sorted(given.cosine for given in tokens.values() if math.isfinite(given.cosine))
    before = ""
    for block, (size, spread, cosine) in tokens.items():
        if cosine < LOST and between[len(between) // 2] > KEPT:
            yield "no-residual", before, f"mean cosine of its tokens with those it was given is {cosine:.2g}"
        before = block
        if spread < ALIKE:
            yield "tokens-alike", block, "mean cosine between two tokens is 1: they hold the same"
        if size > GROWTH * usual * start > 0:
            growth = f"tokens are {size / start:.3g} times those before the first block"
            yield "stream-grows", block, f"{growth} (usual at {len(tokens)} blocks: {usual:.2g})"


def _gradients(model: nn.Module) -> Warnings:
    rows = defaultdict(list)
    for name, parameter in model.named_parameters():
        if UNTRAINED.search(name) or not parameter.requires_grad:
            continue
        if parameter.grad is None:
            yield "unused", name, "the output does not depend on it: no gradient"
        elif name.endswith("weight"):
            norm = float(parameter.grad.norm())
            if parameter.numel() and not 0 < norm < math.inf:
                yield "gradient-dead", name, f"its gradient is {norm:g}"
            elif parameter.ndim > 1:
                rows[_pattern(name), parameter.shape].append((norm, name))
    for row in rows.values():
        (low, least), (high, most) = min(row), max(row)
        if high > GRADIENT * low:
            what = f"gradient {high:.2g}, and {low:.2g} in {least}: over {GRADIENT:g} times apart"
            yield "gradient-uneven", most, what


@torch.no_grad()
def _dependences(model: nn.Module, images_BCHW: Tensor) -> Warnings:
    alone, pair, again = (_run(model, images_BCHW[:count]) for count in (1, 2, 2))
    if (change := float((pair - again).norm() / pair.norm())) > APART:
        yield "repeat-differs", "output", f"a second pass in evaluation mode changes it by {change:.2g}"
    elif (change := float((pair[:1] - alone).norm() / alone.norm())) > APART:
        yield "batch-mixed", "output", f"the other images of the batch change that of an image by {change:.2g}"
