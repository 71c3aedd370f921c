"""Is a model sound at the start? Values of its tensors, one pass forward and back, and what its output depends on.

Limits are formulas, or the range of untouched models with room to spare.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitinit.initializers.adapters import layer_scales
from vitinit.initializers.apply import METHODS, Meant
from vitinit.initializers.attention import attention_layers
from vitinit.initializers.errors import VitinitError, plain
from vitinit.initializers.measure import Softmaxes
from vitinit.initializers.streams import stream
from vitinit.initializers.transaction import copy_of, refuse, usual_settings
from vitinit.initializers.whole_model import NORMS, classifiers

WIDTH = 80
GIVEN, DRAWN = 16, 8
"""Images that are looked at: of those given, and random ones where none are."""
SIZES = (224, 32, 64, 28, 96, 128, 256, 384, 16, 8)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RAW = 20.0
"""Largest normalised pixel of any data set whose channels have a standard deviation of 0.05 or more: 1 / 0.05."""
ABOVE_CHANCE = 0.5
"""Nats over ln K. Normal logits of standard deviation s lose s^2 / 2: this is s = 1."""
MASKED = 60.0
"""Below the largest logit of a row: weights of e^-60, such as those that Swin masks by -100, are left out of a row."""
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
APART, SAME = 1e-3, 1e-6
"""Relative changes of an output that rounding cannot explain, and that are none."""
UNUSUAL = 0.7
"""Share that dropout removes at most; 0.5 is the largest in common use."""
NOISE = 0.02
"""Standard deviation of what stands in for a matrix of zeros while gradients are measured."""
TINY, HUGE = 1e-30, 1e6
"""Beyond these a number is what unused memory holds: the smallest start of any library is 1e-6."""
UNTRAINED = re.compile(r"mask_token|(^|\.)pooler\.|logit_scale|temperature|relative_position|rel_pos|rope|freqs")
"""Parameters that classifiers do not use by design."""
PLACES = re.compile(r"pos|table|rope|freqs", re.IGNORECASE)
"""Parameters that may tell places apart."""
SHORTCUT = re.compile(r"(^|\.)(downsample|shortcut|skip)[^.]*$")
"""Names of what a block may call after its branch, on its own input."""
RESET = "call its reset_parameters(), or vitinit.initialize(model, base='trunc_normal')"
SYMMETRY = "outputs that start equal get equal gradients (Goodfellow, Bengio, Courville: Deep Learning, 8.4)"
PYTORCH = "PyTorch: torch.empty and Module.to_empty leave memory as it is; dinov2 PR 476"
SCALE = "norms before the branches, residual connections, and weights of one scale in all layers"
BY_LAYER = "arXiv 1502.01852, 2.2 (gradients by layer)"
WARNINGS: dict[str, tuple[str, str]] = {
    "not-finite": (RESET, PYTORCH),
    "uninitialised": (RESET, PYTORCH),
    "constant": (RESET, SYMMETRY),
    "equal-rows": (RESET, SYMMETRY),
    "copies": (
        "initialise after the layers are made: vitinit.initialize(model, base='trunc_normal')",
        "nn.TransformerEncoder copies its layer; its documentation asks to initialise the copies by hand",
    ),
    "odd-one-out": (
        "initialise it as the others: it is left out by the code that sets these",
        "the same tensor of all layers has one distribution, or one that changes slowly, in every library",
    ),
    "frozen": ("parameter.requires_grad_(True), if it is not meant so", "ours"),
    "dropout-high": ("0 to 0.5", "arXiv 1207.0580 (0.5); ViTs: 0 to 0.1"),
    "classes": ("make the model with as many logits as there are classes", "one logit a class"),
    "labels-out-of-range": (
        "labels - 1 where they count from 1; else as many logits as there are classes (num_classes)",
        "torch.nn.functional.cross_entropy",
    ),
    "images-not-normalised": (
        "torchvision.transforms.Normalize(mean, std) with those of the training images, after scaling to 0..1",
        "normalised photographs reach 4 to 5",
    ),
    "loss-not-finite": ("mend the tensors above; else look for a layer without a norm, or float16 logits", "ours"),
    "softmax-in-model": (
        "return the logits, without softmax",
        "torch.nn.CrossEntropyLoss: the input is expected to contain unnormalised logits",
    ),
    "loss-above-chance": (
        "a smaller head: nn.init.trunc_normal_(head.weight, std=0.02) or zeros, bias 0; a norm before it",
        "normal logits of standard deviation s lose s^2 / 2 nats; big_vision starts the head at 0",
    ),
    "attention-too-sharp": (
        "smaller W_q and W_k (std 0.02), the factor 1/sqrt(d), a norm before attention, or qk-norm",
        "logits above it concentrate on few keys (random energy model); entropy collapse: arXiv 2303.06296",
    ),
    "softmax-twice": ("one softmax, over the keys: dim=-1", "arXiv 1706.03762, 3.2.1"),
    "softmax-over-queries": ("one softmax, over the keys: dim=-1", "arXiv 1706.03762, 3.2.1"),
    "attention-uniform": ("W_q and W_k of std 0.02", "arXiv 2103.03404"),
    "tokens-alike": (
        "residual connections around attention, positions that are added, a patch embedding that is not 0",
        "attention alone makes tokens equal with depth: arXiv 2103.03404",
    ),
    "stream-grows": (
        "a norm before attention and MLP, smaller ends of branches (method depth_scaled), or layer scale",
        "L blocks of two branches, each of the size of the first tokens: sqrt(2 L); arXiv 2304.14802",
    ),
    "unused": (
        "use it in forward (are positions added? is a branch left out?), or remove it",
        "torch.autograd: the gradient of a parameter that is not part of the output is None",
    ),
    "gradient-not-finite": ("look for a root or a division at 0, and for activations that overflow", "ours"),
    "gradient-dead": (
        "look for detach(), no_grad, a zero or a norm of weight 0 before or behind it, or a dead ReLU",
        "arXiv 1903.06733 (dying ReLU); zero norms: arXiv 1706.02677, 5.1",
    ),
    "gradient-explodes": (SCALE, BY_LAYER),
    "gradient-vanishes": (SCALE, BY_LAYER),
    "repeat-differs": (
        "F.dropout(x, p, self.training): by default it is on; no noise in evaluation mode",
        "PyTorch: functional.dropout has training=True",
    ),
    "batch-mixed": (
        "batch_first=True in nn.MultiheadAttention and nn.TransformerEncoder; reshapes that keep images apart",
        "PyTorch: attention takes tokens x batch x width by default",
    ),
    "output-constant": (
        "look for a patch embedding or norm of zeros, a class token that never attends, equal images",
        "it cannot fall below the entropy of the labels",
    ),
}
"""By key, the usual remedy, and the paper, issue or formula that limit or remedy is from."""


@dataclass(frozen=True)
class Finding:
    """Warning of a check."""

    key: str
    """Short name of the kind of trouble, such as `tokens-alike`; it stays between versions."""
    where: str
    """Tensor, layer or argument."""
    what: str
    """Measurement, beside the limit that it passes."""
    mend: str
    """Usual remedy."""
    source: str
    """Paper, issue or formula that the limit or the mend is from."""


def _finding(key: str, where: str | list[str], what: str) -> Finding:
    names = [where] if isinstance(where, str) else list(dict.fromkeys(where))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return Finding(key, names[0] + more, what, *WARNINGS[key])


@dataclass(frozen=True)
class Layer:
    """Numbers of a block, in the order of the forward pass; None where there is nothing to measure."""

    name: str
    stream: float
    """Root mean square of its input."""
    cosine: float
    """Mean cosine between two tokens of its input."""
    logits: float | None
    """Standard deviation of a row of attention logits, of the head where it is largest."""
    gradient: float | None
    """Norm of the gradient of its parameters."""


@dataclass(frozen=True)
class Check:
    """Report of `check`: `print` shows a page; `findings` are empty for a sound model."""

    model: str
    parameters: int
    images: str
    """Images that the measurement used, in words."""
    classes: int
    loss: float | None
    """Cross-entropy at the start; None where it is not finite."""
    chance: float
    """ln K, the loss of a model that gives every class the same probability."""
    layers: tuple[Layer, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    """Properties that are unusual by design, and what was not seen."""

    @property
    def sound(self) -> bool:
        """True where there is no warning."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """One line."""
        kinds = ", ".join(dict.fromkeys(one.key for one in self.findings))
        return f"{self.model}: {f'{len(self.findings)} warnings: {kinds}' if kinds else 'sound at the start'}"

    def __str__(self) -> str:
        """Return the page: verdict, warnings, numbers by layer, notes."""
        loss = "not finite" if self.loss is None else f"{self.loss:.3f}"
        said = [self.verdict, f"{self.parameters / 1e6:.1f} M parameters, {self.images}."]
        said.append(f"Loss {loss}, ln {self.classes} = {self.chance:.3f}.")
        for one in self.findings:
            said += [f"{one.key}: {one.where}: {one.what}", f"  usually helps: {one.mend} ({one.source})"]
        said += [f"note: {note}" for note in self.notes]
        lines = [line for text in said for line in textwrap.wrap(text, WIDTH, subsequent_indent="    ")]
        if self.layers:
            lines.append(f"{'':<30}{'rms':>10}{'cosine':>10}{'logits':>10}{'gradient':>10}")
        for layer in self.layers:
            cells = (layer.stream, layer.cosine, layer.logits, layer.gradient)
            lines.append(f"{layer.name[-29:]:<30}" + "".join(f"{'-' if x is None else f'{x:.3g}':>10}" for x in cells))
        return "\n".join(lines)


def check(
    model: nn.Module,
    images: Tensor | None,
    labels: Tensor | None,
    classes: int | None,
    seed: int,
    size: int | None = None,
) -> Check:
    """Check a model and leave it as it was, bit for bit; `vitinit.check` has the words.

    Raises:
        VitinitError: it cannot be run: what it is, or what it does not take.
    """
    if classes is not None and not (type(classes) is int and classes > 0):
        raise VitinitError(f"classes must be a whole number of at least 1, not {classes!r}")
    if images is not None and not (isinstance(images, Tensor) and images.ndim == 4 and len(images)):
        raise VitinitError("images must be a tensor of B x C x H x W, B at least 1")
    if labels is not None:
        if images is None:
            raise VitinitError("labels are those of images: give images too")
        if not isinstance(labels, Tensor) or labels.ndim != 1 or labels.is_floating_point():
            raise VitinitError("labels must be a tensor of B whole numbers, one class an image")
        if len(labels) < len(images):
            raise VitinitError(f"there are {len(labels)} labels for {len(images)} images: one an image")
    refuse(model)
    devices = {one.device for one in model.parameters() if one.device.type == "cuda"}
    with usual_settings(model), torch.random.fork_rng(devices=devices), torch.enable_grad():
        copied = copy_of(model).train()  # LeViT drops what it has kept of its weights
        return _check(copied.eval(), METHODS.get(model), images, labels, classes, seed, size)


def _check(
    model: Any,
    meant: Meant | None,
    images: Tensor | None,
    labels: Tensor | None,
    classes: int | None,
    seed: int,
    size: int | None,
) -> Check:
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    if images is None:
        images_BCHW, said = _drawn_images(model, seed, size, device)
    else:
        images_BCHW = images[:GIVEN].detach().float().to(device)
        said = f"{len(images_BCHW)} images of {' x '.join(map(str, images_BCHW.shape[1:]))}"
    heads = list(classifiers(model).values())
    with torch.no_grad():
        alone, pair = (_Pass(model, images_BCHW[:count], heads) for count in (1, 2))
        with _batch_statistics(model):
            run, again = (_Pass(model, images_BCHW, heads, _blocks(model)) for _ in range(2))
    count = run.logits.shape[1]
    given = labels is not None and int(labels.min()) >= 0 and int(labels.max()) < count
    labels_B = torch.randint(count, (len(images_BCHW),), generator=stream(seed, "check/labels"))
    if labels is not None and given:
        labels_B = labels[: len(images_BCHW)].detach().long()
    said += "" if given else ", random labels"
    loss = float(F.cross_entropy(run.logits, labels_B.to(device)))
    finite = math.isfinite(loss)
    findings = [*_tensors(model, meant.changed if meant else set()), *_frozen(model, heads, meant)]
    findings += _given(model, images, labels, classes, count)
    attention = list(_attention(model, run)) if finite else []
    standing_in = _stand_in(model, run, seed)
    gradients, moving = _gradients(model, images_BCHW, labels_B.to(device))
    if heads or not finite:
        findings += _loss(run.logits, loss)
    if not meant:
        findings += attention
    if finite:
        findings += [*_streams(run), *_of_gradients(gradients), *_dependences(run, again, alone, pair, moving)]
    notes = [f"{one.key} in {one.where}, as method {meant.name!r} means it" for one in attention if meant]
    if standing_in:
        notes.append(f"{len(standing_in)} tensors of zeros ({standing_in[0]}): small numbers stand in for gradients")
    if not heads:
        notes.append("no classifier: its output is not judged as logits")
    if not run.softmaxes:
        notes.append("no softmax between tokens was seen: nothing is known of attention")
    return Check(
        model=type(model).__name__,
        parameters=sum(one.numel() for one in model.parameters()),
        images=said,
        classes=count,
        loss=loss if finite else None,
        chance=math.log(count),
        layers=tuple(_layers(run, gradients)),
        findings=tuple(findings),
        notes=tuple(notes),
    )


# --- images ----------------------------------------------------------------------------------------------------------


def _configured(model: nn.Module, name: str) -> Any:
    """Return a value of the configuration that timm's models have; None where there is none."""
    configs = [getattr(module, "pretrained_cfg", None) or {} for module in model.modules()]
    return next((config[name] for config in configs if config.get(name)), None)


def sizes(model: nn.Module) -> list[tuple[int, int]]:
    """Heights and widths of images that a model may be made for, the likeliest first."""
    homes = [home for module in model.modules() for home in (module, getattr(module, "config", None))]
    named = [getattr(home, name, None) for home in homes for name in ("img_size", "image_size")]
    named += [(_configured(model, "input_size") or ())[1:], *SIZES]
    pairs = [one if isinstance(one, tuple | list) else (one, one) for one in named if one]
    return list(dict.fromkeys((one[0], one[-1]) for one in pairs if isinstance(one[0], int)))


def _drawn_images(model: nn.Module, seed: int, size: int | None, device: torch.device) -> tuple[Tensor, str]:
    """Random images, coarse and fine, normalised by the model's own statistics; of a size that the model takes."""
    mean, std = _configured(model, "mean") or IMAGENET[0], _configured(model, "std") or IMAGENET[1]
    first = next((one for one in model.modules() if isinstance(one, nn.Conv2d)), None)
    channels = first.in_channels if first and first.in_channels <= 4 else len(mean)
    mean_C11, std_C11 = (torch.tensor((tuple(one) * 4)[:channels])[:, None, None] for one in (mean, std))
    tried, reasons = [(size, size)] if size else sizes(model), []
    for height, width in tried:
        generator = stream(seed, "check/images")
        fine = torch.rand(DRAWN, channels, height, width, generator=generator)
        coarse = torch.rand(DRAWN, channels, max(2, height // 16), max(2, width // 16), generator=generator)
        pixels = 0.5 * fine + 0.5 * F.interpolate(coarse, (height, width), mode="bilinear")
        images_BCHW = ((pixels - mean_C11) / std_C11).to(device)
        try:
            with torch.no_grad():
                model(images_BCHW[:1])
        except Exception as error:  # code of anyone's
            reasons.append(_reason(error))
        else:
            return images_BCHW, f"{DRAWN} random images of {height} x {width} (no data given)"
    given = ", ".join(f"{height} x {width}" for height, width in tried[:4])
    raise VitinitError(f"{type(model).__name__} does not take images of {given}: {reasons[0]}; give images=batch")


def _reason(error: Exception) -> str:
    return plain((str(error).splitlines() or [type(error).__name__])[0], 200)


def _given(
    model: nn.Module, images: Tensor | None, labels: Tensor | None, classes: int | None, count: int
) -> Iterator[Finding]:
    if classes is not None and classes != count:
        yield _finding("classes", "head", f"the model has {count} logits, and there are {classes} classes")
    if labels is not None and not (int(labels.min()) >= 0 and int(labels.max()) < count):
        what = f"they are from {int(labels.min())} to {int(labels.max())}, and {count} logits have classes from 0 on"
        yield _finding("labels-out-of-range", "labels", what)
    inside = [name for name, _ in model.named_buffers() if re.search(r"(^|\.)[a-z_]*(?<!running_)mean$", name)]
    inside += [name for name, one in model.named_modules() if "normalize" in type(one).__name__.lower()]
    if images is not None and float(images.abs().max()) > RAW and not inside:
        what = f"pixels are up to {float(images.abs().max()):.3g}, beyond {RAW:g}: those of 0..255, not normalised"
        yield _finding("images-not-normalised", "images", what)


# --- one pass --------------------------------------------------------------------------------------------------------


def _blocks(model: nn.Module) -> list[str]:
    """Names of the blocks of a model: modules of one class in a row, the innermost such row."""
    groups: dict[tuple[type, str], list[str]] = defaultdict(list)
    for name, module in model.named_modules():
        holder = isinstance(module, nn.ModuleList | nn.ModuleDict) or not list(module.children())
        if name and not holder and any(one.ndim > 1 for one in module.parameters()):
            groups[type(module), re.sub(r"\d+", "*", name)].append(name)
    rows = {name: pattern.count("*") for (_, pattern), names in groups.items() if len(names) > 1 for name in names}
    found: list[str] = []
    for name in rows:
        outer = any(name.startswith(f"{one}.") and rows[one] == rows[name] for one in rows)
        deeper = any(one.startswith(f"{name}.") and rows[one] > rows[name] for one in rows)
        if not outer and not deeper and not any(name.startswith(f"{one}.") for one in found):
            found.append(name)
    return found


@contextmanager
def _batch_statistics(model: nn.Module) -> Iterator[None]:
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    yield
    model.eval()


@dataclass(frozen=True)
class _Softmax:
    """One softmax between tokens."""

    module: str
    keys: int
    logits: float
    by_place: bool
    """True where all images have the same logits."""
    again: bool
    """True where its input is a distribution already."""
    over_queries: bool


class _Pass:
    """One forward pass: its logits, softmaxes between tokens, and what blocks and classifiers are given."""

    def __init__(self, model: nn.Module, images_BCHW: Tensor, heads: Sequence[str], blocks: Sequence[str] = ()) -> None:
        self.heads, self.blocks = heads, blocks
        self.softmaxes: list[_Softmax] = []
        self.streams: dict[str, tuple[float, float, float]] = {}
        """By block: root mean square and cosine of its input tokens, root mean square of its output."""
        self.called: list[str] = []
        self.given: list[Tensor] = []
        """Inputs of the classifiers."""
        self.stack: list[tuple[str, tuple[int, ...]]] = []
        with ExitStack() as hooks:
            for name, module in model.named_modules():
                hooks.callback(
                    module.register_forward_pre_hook(
                        lambda one, inputs, named, name=name: self.enter(name, one, (*inputs, *named.values())),
                        with_kwargs=True,
                    ).remove
                )
                hooks.callback(module.register_forward_hook(lambda _, __, out, name=name: self.leave(name, out)).remove)
            try:
                with Softmaxes(self.see):
                    self.logits = logits_of(model(images_BCHW)).float()
            except (AssertionError, RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
                size = " x ".join(map(str, images_BCHW.shape))
                what = f"{type(model).__name__} does not take images of {size}"
                raise VitinitError(f"{what}: {_reason(error)}") from None
        fitting = [one for one in self.given if len(one) == len(self.logits)]
        self.features = (fitting[0] if fitting else self.logits.detach()).flatten(1).float()

    def enter(self, name: str, module: nn.Module, given: tuple[Any, ...]) -> None:
        """See the input of a module."""
        x = next((one for one in given if isinstance(one, Tensor) and one.is_floating_point()), None)
        weighty = x is not None and any(True for _ in module.parameters())
        self.called.append(name)
        self.stack.append((name, tuple(x.shape) if x is not None and weighty else ()))
        if x is None:
            return
        if name in self.heads:
            self.given.append(x.detach())
        if name in self.blocks and (tokens_BND := _tokens(x)) is not None:
            self.streams[name] = _rms(x), _cosine(tokens_BND), 0.0

    def leave(self, name: str, out: Any) -> None:
        """See the output of a module."""
        self.stack.pop()
        out = out[0] if isinstance(out, tuple | list) and out else out
        if name in self.streams and isinstance(out, Tensor):
            self.streams[name] = *self.streams[name][:2], _rms(out)

    def see(self, logits: Tensor, attention: Tensor, dim: int) -> None:
        """See a softmax, in the innermost module with weights that has an input."""
        name, shape = next(((name, shape) for name, shape in reversed(self.stack) if shape), ("", ()))
        *_, queries, keys = (1, *logits.shape)
        between = len(shape) != 3 or keys in shape[:2] or shape[-1] != keys
        if logits.ndim < 3 or keys < 2 or not between or not (dim == -1 or (dim == -2 and queries == keys)):
            return
        logits = logits.float()
        rows_RHQK = logits.reshape(-1, logits.shape[-3] if logits.ndim > 3 else 1, queries, keys)
        free = rows_RHQK >= rows_RHQK.amax(-1, keepdim=True) - MASKED
        count_RHQ1 = free.sum(-1, keepdim=True)
        mean_RHQ1 = torch.where(free, rows_RHQK, 0.0).sum(-1, keepdim=True) / count_RHQ1
        square_RHQK = torch.where(free, rows_RHQK - mean_RHQ1, 0.0).square()
        std_H = (square_RHQK.sum(-1, keepdim=True) / count_RHQ1).sqrt().mean((0, 2, 3))
        first, last = rows_RHQK[0], rows_RHQK[-1]
        same = len(rows_RHQK) > 1 and torch.allclose(first, last, rtol=1e-6, atol=0) and bool(first.any())
        self.softmaxes.append(_Softmax(name, keys, float(std_H.max()), same, _distributions(logits), dim == -2))


def _distributions(rows: Tensor) -> bool:
    """Return True where every row is a distribution."""
    return bool((rows >= 0).all()) and bool(((rows.sum(-1) - 1).abs() < 1e-3).all())


def logits_of(out: Any) -> Tensor:
    """Return the logits, B x K, among what a model returns.

    Raises:
        VitinitError: there are none.
    """
    for path in ("logits", "prediction"):
        out = getattr(out, path, out)
    if isinstance(out, dict):
        out = out.get("logits", next(iter(out.values()), None))
    while isinstance(out, tuple | list) and out:
        out = out[0]
    if not isinstance(out, Tensor) or out.ndim != 2:
        what = " x ".join(map(str, out.shape)) if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise VitinitError(f"the model returns {what}, and logits of B x K are needed: a classifier with a head")
    return out


def _tokens(value: Tensor) -> Tensor | None:
    """Tokens of an activation, B x N x D; None where it has none."""
    if value.ndim == 4:
        channels_first = value.shape[2] == value.shape[3] and value.shape[1] != value.shape[2]
        value = value.flatten(2).mT if channels_first else value.flatten(1, 2)
    return value if value.ndim == 3 and value.shape[1] > 1 else None


def _rms(value: Tensor) -> float:
    return float(value.detach().float().square().mean().sqrt())


def _cosine(tokens_BND: Tensor) -> float:
    """Mean cosine between two tokens of an image."""
    unit_BND, count = F.normalize(tokens_BND.detach().float(), dim=-1), tokens_BND.shape[1]
    sums = count * unit_BND.mean(1).square().sum(-1) - unit_BND.square().sum(-1).mean(1)
    return float((sums / (count - 1)).mean())


@torch.no_grad()
def _stand_in(model: nn.Module, run: _Pass, seed: int) -> list[str]:
    """Replace zeros that training changes: matrices but the patch embedding by small noise, scales of branches by 1.

    A norm scales a branch where it is called last in its block.
    """
    first = next((one for one in model.modules() if isinstance(one, nn.Conv2d)), None)
    generator, replaced = stream(seed, "check/zeros"), list[str]()
    scales = {id(one) for one in layer_scales(model)}
    weighty = {name for name, module in model.named_modules() if any(True for _ in module.parameters())}
    for path, module in model.named_modules():
        home = path.rpartition(".")[0]
        is_norm = isinstance(module, NORMS) or "norm" in type(module).__name__.lower()
        beside = [one for one in run.called if one in weighty and one.rpartition(".")[0] == home]
        last = [one for one in beside if not SHORTCUT.search(one)][-1:]
        for own, parameter in module.named_parameters(recurse=False):
            if bool(parameter.any()) or own.endswith("bias") or not parameter.numel() or module is first:
                continue
            if parameter.ndim > 1 and isinstance(module, nn.Linear | nn.Conv2d | nn.MultiheadAttention):
                parameter.copy_(torch.empty(parameter.shape).normal_(0, NOISE, generator=generator))
            elif id(parameter) in scales or (is_norm and home and last == [path]):
                parameter.fill_(1.0)
            else:
                continue
            replaced.append(f"{path}.{own}".lstrip("."))
    return replaced


def _gradients(model: nn.Module, images_BCHW: Tensor, labels_B: Tensor) -> tuple[dict[str, float | None], Tensor]:
    """Norm of the gradient by trained parameter, None where it is not part of the output; and the logits."""
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    with _batch_statistics(model):
        logits = logits_of(model(images_BCHW)).float()
    if not logits.requires_grad:
        return {}, logits
    F.cross_entropy(logits, labels_B).backward()
    norms = {name: None if one.grad is None else float(one.grad.float().norm()) for name, one in trained.items()}
    return norms, logits.detach()


def _layers(run: _Pass, gradients: dict[str, float | None]) -> Iterator[Layer]:
    for name, (size, cosine, _) in run.streams.items():
        norms = [norm for one, norm in gradients.items() if one.startswith(f"{name}.") and norm is not None]
        logits = [one.logits for one in run.softmaxes if f"{one.module}.".startswith(f"{name}.")]
        yield Layer(name, size, cosine, max(logits, default=None), math.hypot(*norms) if norms else None)


# --- warnings --------------------------------------------------------------------------------------------------------


def _form(value: Tensor) -> str:
    share = float((value != 0).float().mean())
    return "zero" if share == 0 else "sparse" if share < 0.5 else "dense"


def _tensors(model: nn.Module, meant: set[str]) -> Iterator[Finding]:
    """Yield what is wrong with single tensors, then with those that differ from their neighbours in depth."""
    rows: dict[tuple[str, torch.Size], list[tuple[str, Tensor]]] = defaultdict(list)
    parameters = dict(model.named_parameters())
    for name, tensor in (*parameters.items(), *model.named_buffers()):
        value = tensor.detach().float()
        bad = value.isnan() if name not in parameters else ~value.isfinite()  # buffers may hold -inf as a mask
        largest = float(value.abs().max()) if value.numel() else 0.0
        if bad.any():
            yield _finding("not-finite", name, f"{int(bad.sum()):,} of {value.numel():,} numbers are NaN or infinite")
        elif name in meant or name not in parameters:
            continue
        elif 0 < largest < TINY or largest > HUGE:
            what = f"its numbers are up to {largest:.3g}, as those of memory that nobody has set"
            yield _finding("uninitialised", name, what)
        elif value.ndim < 2 or min(value.flatten(1).shape) < 2 or PLACES.search(name):
            continue
        elif largest and bool((value == value.flatten()[0]).all()):
            yield _finding("constant", name, f"all its numbers are {largest:.3g}")
        elif _form(value) == "dense" and (equal := len(value) - len(value.flatten(1).unique(dim=0))):
            yield _finding("equal-rows", name, f"{equal:,} of {len(value):,} rows are copies")
        elif value.numel() >= 64:
            rows[re.sub(r"\d+", "*", name), value.shape].append((name, value))
    copied: list[str] = []
    for row in rows.values():
        yield from _odd_ones(row)
        copied += [name for name, one in row[1:] if _form(one) == "dense" and one.equal(row[0][1])]
    if copied:
        yield _finding("copies", copied, "it starts with the numbers of another layer")


def _odd_ones(row: list[tuple[str, Tensor]]) -> Iterator[Finding]:
    stds, forms = [float(one.std()) for _, one in row], [_form(one) for _, one in row]
    for at, (name, _) in enumerate(row if len(row) > 2 else []):
        inside = 0 < at < len(row) - 1
        first, second = (at - 1, at + 1) if inside else (1, 2) if at == 0 else (at - 1, at - 2)
        ratios = [stds[at] / max(stds[other], 1e-12) for other in (first, second)]
        apart = min(ratios) > FACTOR or max(ratios) < 1 / FACTOR
        steady = 1 / FACTOR < stds[first] / max(stds[second], 1e-12) < FACTOR
        if forms[first] == forms[second] != forms[at]:
            yield _finding("odd-one-out", name, f"it is {forms[at]}, and in its neighbours in depth {forms[first]}")
        elif forms[first] == forms[second] and apart and (inside or steady):
            what = f"its standard deviation is {stds[at]:.3g}, in its neighbours in depth {stds[first]:.3g}"
            yield _finding("odd-one-out", name, what)


def _frozen(model: nn.Module, heads: list[str], meant: Meant | None) -> Iterator[Finding]:
    """Yield weights that are not trained beside others that are, and dropout that leaves hardly anything.

    Where the classifier alone is trained, nothing is said: that is how a frozen model is tested.
    """
    weights = {name: one for name, one in model.named_parameters() if one.ndim > 1 and not PLACES.search(name)}
    frozen = [name for name, one in weights.items() if not one.requires_grad]
    frozen = [name for name in frozen if not meant or name not in meant.untrained]
    trained = [name for name, one in weights.items() if one.requires_grad and name.rpartition(".")[0] not in heads]
    if frozen and trained:
        yield _finding("frozen", frozen, f"requires_grad is False, and {len(trained)} other weights are trained")
    for name, module in model.named_modules():
        share = getattr(module, "p", getattr(module, "drop_prob", 0.0))
        if "drop" in type(module).__name__.lower() and isinstance(share, float) and share > UNUSUAL:
            yield _finding("dropout-high", name, f"it removes {share:.0%} of its input in training")


def _loss(logits: Tensor, loss: float) -> Iterator[Finding]:
    chance = math.log(logits.shape[1])
    if not math.isfinite(loss):
        yield _finding("loss-not-finite", "loss", "it is NaN or infinite on this batch")
    elif chance and _distributions(logits):
        what = "each row is a distribution: the model ends with a softmax, and cross-entropy applies another"
        yield _finding("softmax-in-model", "output", what)
    elif loss > chance + ABOVE_CHANCE:
        spread = float(logits.std(1).mean())
        what = f"loss {loss:.3g}, ln {logits.shape[1]} = {chance:.3g}: logits have a standard deviation of {spread:.3g}"
        yield _finding("loss-above-chance", "head", what)


def _attention(model: nn.Module, run: _Pass) -> Iterator[Finding]:
    def limit(one: _Softmax) -> float:
        return math.sqrt(2 * math.log(one.keys))

    sharp = [one for one in run.softmaxes if not one.by_place and one.logits > limit(one)]
    if sharp:
        worst = max(sharp, key=lambda one: one.logits / limit(one))
        what = f"standard deviation of a row of logits {worst.logits:.3g}, above sqrt(2 ln {worst.keys})"
        yield _finding("attention-too-sharp", [one.module for one in sharp], f"{what} = {limit(worst):.3g}")
    if twice := [one.module for one in run.softmaxes if one.again]:
        yield _finding("softmax-twice", twice, "a softmax of a distribution")
    if turned := [one.module for one in run.softmaxes if one.over_queries]:
        yield _finding("softmax-over-queries", turned, "softmax over queries")
    with suppress(VitinitError):
        layers = attention_layers(model)
        dead = [one.name for one in layers if not bool(one.query_HdD.any()) and not bool(one.key_HdD.any())]
        if dead:
            yield _finding("attention-uniform", dead, "W_q and W_k are both 0: neither of them gets a gradient")


def _streams(run: _Pass) -> Iterator[Finding]:
    alike = [name for name, (_, cosine, _) in run.streams.items() if 1 - cosine < ALIKE]
    if alike:
        yield _finding("tokens-alike", alike, "mean cosine between two tokens is 1: they hold the same")
    sizes = {name: max(size, after) for name, (size, _, after) in run.streams.items()}
    start, usual = next((size for size, _, _ in run.streams.values()), 0.0), math.sqrt(2 * len(sizes))
    if len(sizes) > 1 and start and max(sizes.values()) > GROWTH * usual * start:
        worst = max(sizes, key=lambda name: sizes[name])
        growth = f"tokens are {sizes[worst] / start:.3g} times those before the first block"
        yield _finding("stream-grows", worst, f"{growth} (usual at {len(sizes)} blocks: {usual:.2g})")


def _of_gradients(gradients: dict[str, float | None]) -> Iterator[Finding]:
    judged = {name: norm for name, norm in gradients.items() if not UNTRAINED.search(name)}
    if unused := [name for name, norm in judged.items() if norm is None]:
        yield _finding("unused", unused, "the output does not depend on it: no gradient")
    norms = {name: norm for name, norm in judged.items() if norm is not None and "bias" not in name}
    if bad := [name for name, norm in norms.items() if not math.isfinite(norm)]:
        yield _finding("gradient-not-finite", bad, "its gradient is NaN or infinite")
        return
    if dead := [name for name, norm in norms.items() if norm == 0 and name.endswith("weight")]:
        yield _finding("gradient-dead", dead, "its gradient is 0")
    rows: dict[str, list[str]] = defaultdict(list)
    for name, norm in norms.items():
        if norm and name.endswith("weight") and "norm" not in name and re.search(r"\d", name):
            rows[re.sub(r"\d+", "*", name)].append(name)
    ends = [[pick(names, key=lambda one: norms[one]) for pick in (min, max)] for names in rows.values()]
    low, high = max(ends, key=lambda pair: norms[pair[1]] / norms[pair[0]], default=("", ""))
    if low and norms[high] > GRADIENT * norms[low]:
        order = list(norms)
        what = f"gradient {norms[high]:.2g} in {high}, {norms[low]:.2g} in {low}: over {GRADIENT:g} times apart"
        early = order.index(high) < order.index(low)
        yield _finding("gradient-explodes" if early else "gradient-vanishes", high if early else low, what)


def _change(left: Tensor, right: Tensor) -> float:
    return float((left - right).norm() / left.norm().clamp(min=1e-30))


def _dependences(run: _Pass, again: _Pass, alone: _Pass, pair: _Pass, moving: Tensor) -> Iterator[Finding]:
    repeated, together = _change(run.logits, again.logits), _change(alone.features, pair.features[:1])
    if repeated > APART:
        what = f"a second pass with the same images changes the output by {repeated:.2g}, in evaluation mode"
        yield _finding("repeat-differs", "output", what)
    elif together > APART:
        what = f"an image's output changes by {together:.2g} with the other images of its batch"
        yield _finding("batch-mixed", "output", what)
    spread = float(moving.std(0).norm() / moving.norm(dim=1).mean().clamp(min=1e-30)) if len(moving) > 1 else 1.0
    if spread < SAME:
        what = f"it differs by {spread:.2g} between images: the model does not see them"
        yield _finding("output-constant", "output", what)
