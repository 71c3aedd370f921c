"""The check itself: all measurements, in one place, and undone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn

from vitinit.initializers.apply import all_or_nothing
from vitinit.initializers.attention import ATTENTION
from vitinit.initializers.check.findings import limit, positions_at_zero, run_findings
from vitinit.initializers.check.inputs import (
    check_images,
    check_labels,
    drawn_images,
    drawn_labels,
    failure,
    image_findings,
    label_findings,
    logits_of,
    statistics,
)
from vitinit.initializers.check.measuring import Measured, measure
from vitinit.initializers.check.nearest import nearest, purposes
from vitinit.initializers.check.report import Check, Finding, Layer
from vitinit.initializers.check.tensors import tensor_findings
from vitinit.initializers.errors import VitinitError

DRAWN = 8
"""Random images, where none are given."""


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
    if classes is not None and (isinstance(classes, bool) or not isinstance(classes, int) or classes < 1):
        raise VitinitError(f"classes must be a whole number of at least 1, not {classes!r}")
    given_BCHW = None if images is None else check_images(images)
    given_B = None if labels is None else check_labels(labels, 0 if given_BCHW is None else len(given_BCHW))
    if labels is not None and images is None:
        raise VitinitError("labels are those of images: give images too")
    with undone(model):
        return _check(model, given_BCHW, given_B, classes, seed, size)


def _check(
    model: nn.Module,
    given_BCHW: Tensor | None,
    given_B: Tensor | None,
    classes: int | None,
    seed: int,
    size: int | None,
) -> Check:
    model.eval()
    known = purposes(model)
    findings = list(tensor_findings(model, known))
    finite = {name: one.detach() for name, one in model.named_parameters() if bool(one.detach().sum().isfinite())}
    groups = nearest(finite, known, seed)
    if given_BCHW is None:
        images_BCHW, said = drawn_images(model, DRAWN, seed, size)
    else:
        findings += image_findings(given_BCHW, statistics(model)[0])
        images_BCHW = given_BCHW.to(next((one.device for one in model.parameters()), given_BCHW.device))
        said = f"{len(given_BCHW)} images of {' x '.join(map(str, given_BCHW.shape[1:]))}"
        if why := failure(model, images_BCHW[:1]):
            raise VitinitError(f"{type(model).__name__} does not take images of {said.partition('of ')[2]}: {why}")
    count = logits_of(model(images_BCHW[:1])).shape[1]
    notes: list[str] = []
    if classes is not None and classes != count:
        what = f"the model has {count} logits, and there are {classes} classes"
        findings.append(Finding("classes", "head", what, f"make the model with {classes} classes", "one logit a class"))
    labels_B = given_B
    if labels_B is not None:
        findings += (wrong := list(label_findings(labels_B, count)))
        labels_B = None if wrong else labels_B
    if labels_B is None:
        labels_B = drawn_labels(len(images_BCHW), count, seed)
        said += ", random labels"
    labels_B = labels_B.to(images_BCHW.device)
    found = measure(model, images_BCHW, labels_B, known, seed)
    findings += run_findings(model, found, known, given_BCHW is not None)
    if found.standing_in:
        notes.append(
            f"{len(found.standing_in)} tensors of zeros ({found.standing_in[0]}): gradients by layer are measured with "
            "small numbers in their place, for the first step changes them"
        )
    if zero := positions_at_zero(model):
        notes.append(f"positions start at 0 ({zero[0]}): the output depends on places from the first steps on")
    if any(one.by_place for one in found.watched.attention):
        notes.append("attention that depends on places and not on the image: its logits may be sharp by design")
    if any(one.training for one in model.modules()):
        notes.append("batch norms use the statistics of the batch, as in training")
    return Check(
        model=type(model).__name__,
        parameters=sum(one.numel() for one in model.parameters()),
        images=said,
        classes=count,
        loss=found.loss if math.isfinite(found.loss) else None,
        chance=math.log(count),
        step=found.step,
        after=found.after,
        groups=groups,
        layers=tuple(_layers(found)),
        findings=tuple(findings),
        notes=tuple(notes),
        unseen=tuple(_unseen(model, found)),
    )


def _layers(found: Measured) -> list[Layer]:
    """Return one a block; where there are no blocks, one an attention."""
    streams = {one.name: one for one in found.watched.streams}
    seen = [one.module for one in found.watched.attention]
    called = [name for name in found.blocks if name in streams or any(one.startswith(f"{name}.") for one in seen)]
    order = {name: at for at, name in enumerate(streams)}
    names = sorted(called, key=lambda name: order.get(name, len(order))) or list(dict.fromkeys(seen))
    layers = []
    for name in names:
        attention = [one for one in found.watched.attention if f"{one.module}.".startswith(f"{name}.")]
        distances = [one.distance for one in attention if one.distance is not None]
        gradients = [norm for one, norm in found.gradients.items() if one.startswith(f"{name}.") and norm is not None]
        stream, sharpest = streams.get(name), max(attention, key=lambda one: one.logits / limit(one), default=None)
        layers.append(
            Layer(
                name=name,
                stream=stream.size if stream else None,
                cosine=stream.cosine if stream else None,
                rank=stream.rank if stream else None,
                entropy=sum(one.entropy / math.log(one.keys) for one in attention) / len(attention)
                if attention
                else None,
                distance=sum(distances) / len(distances) if distances else None,
                logits=sharpest.logits if sharpest else None,
                limit=limit(sharpest) if sharpest else None,
                gradient=math.hypot(*gradients) if gradients else None,
            )
        )
    return layers


def _unseen(model: nn.Module, found: Measured) -> list[str]:
    """Say what was not seen: attention without a softmax between tokens, blocks, the token grid."""
    seen, lacking = {one.module for one in found.watched.attention}, list[str]()
    for name, module in model.named_modules():
        called = bool(ATTENTION.search(type(module).__name__)) and any(one.ndim > 1 for one in module.parameters())
        inside = any(f"{one}.".startswith(f"{name}.") for one in seen)
        around = any(name.startswith(f"{one}.") for one in (*seen, *lacking))
        if name and called and not inside and not around:
            lacking.append(name)
    said = []
    if lacking:
        rows = dict.fromkeys(re.sub(r"\d+", "*", name) for name in lacking)
        kinds = ", ".join(dict.fromkeys(type(model.get_submodule(name)).__name__ for name in lacking))
        said.append(
            f"attention of {len(lacking)} modules ({', '.join(list(rows)[:3])}: {kinds}): no softmax between tokens "
            "was seen there, so nothing is known of its logits and entropy"
        )
    elif not seen:
        said.append("attention: no softmax between tokens was seen")
    if not found.watched.streams:
        said.append("the stream of tokens: no row of blocks with tokens was found")
    if found.grid is None and seen:
        said.append("the token grid: no adapter knows it, so distances take it to be square, and patches are not moved")
    return said


class _Undo(Exception):
    """Ends `all_or_nothing`, which then puts everything back."""


@contextmanager
def undone(model: nn.Module) -> Iterator[None]:
    """Undo everything within: parameters, buffers, gradients, modes, attributes, hooks, global random state.

    Within, tensors of a float type are float32 copies and have no gradients; gradients can be computed.

    Raises:
        VitinitError: parameters that cannot be written to; says what to do.
    """
    gradients = (
        [(parameter, parameter.grad) for parameter in model.parameters()] if isinstance(model, nn.Module) else []
    )
    try:
        with suppress(_Undo), all_or_nothing(model):
            for parameter, _ in gradients:
                parameter.grad = None
            with torch.enable_grad():
                yield
            raise _Undo
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
