"""Method `placebo`: another method without its pattern."""

import math
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Generator, Tensor, nn

from vitinit.initializers import registry
from vitinit.initializers.attention import (
    AttentionLayer,
    attention_layers,
    evaluated,
    position_name,
    seen_grids,
    survey,
)
from vitinit.initializers.diagnostics import between_tokens, entropies, measured
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Aim, Initializer, Job, changed_by, register
from vitinit.initializers.threads import one_thread
from vitinit.initializers.transaction import fingerprint, fingerprints, named_tensors

IMAGES = 64
"""Training images that attention entropy is matched on."""
CLOSE, ROUNDING, ENOUGH, TRIALS = 1e-3, 1e-5, 1e-2, 40
"""Entropy is brought as close as `CLOSE` to the method's, relative to it and to what it lacks to uniform attention (but
no closer than `ROUNDING`), in no more than `TRIALS`. What is then not `ENOUGH`, relative to it, is refused."""


@register
class Placebo(Initializer):
    """The method `of` is applied, and all that it set is replaced by what keeps its size and loses its pattern.

    At one seed base and method draw what they draw without the placebo, which draws afterwards. `keep` says what stays:

    - `spectrum`: W_q R1 and W_k R2 per head, W_v R3 and R4 W_proj per layer, with independent random orthogonal R.
      Norms, ranks and singular values stay, also those of W_q^T W_k and of W_proj W_v. So with every other weight:
      seen as (out, rest), it is rotated from the right;
    - `norm`: Gaussian, with the same Frobenius norm per head and matrix; every other weight as a whole;
    - `entries`: the same numbers in another order, per head and matrix as in `norm` (arXiv 2511.13945's placebo);
    - `entropy`: as `norm`; then W_q and W_k are scaled, layer by layer from the input on, until the mean attention
      entropy of the layer on training images equals that of the method's.

    What is no weight of two or more dimensions (biases, gates, embeddings) stays as the method set it, and a weight
    that the method leaves at its base stays there; W_q of a layer counts as one, also where a method sets some heads
    only.
    """

    name = "placebo"
    touches = ("*",)
    """No more than the method's own, which `apply` looks at: nothing else is written to."""

    of: dict[str, Any] = Field({"name": "mimetic"}, validate_default=True)
    """A method: its name, or a mapping with `name` and parameters."""
    keep: Literal["spectrum", "norm", "entries", "entropy"] = "spectrum"

    @field_validator("of", mode="before")
    @classmethod
    def _resolved(cls, value: Any) -> dict[str, Any]:
        named = {"name": value} if isinstance(value, str) else value
        if not isinstance(named, dict) or not isinstance(named.get("name"), str):
            raise ValueError("must be the name of a method, or a mapping with `name` and parameters")
        inner = registry.build_named(named, "method")
        if isinstance(inner, cls):
            raise ValueError("a placebo is made of a method, not of another placebo")
        return {"name": named["name"], **inner.model_dump(mode="json")}

    def __str__(self) -> str:
        return f"placebo(of={self.method}, keep={self.keep!r})"

    @property
    def method(self) -> Initializer:
        """The method that it is a placebo of."""
        return registry.build_named(self.of, "method")

    def check(self, model: nn.Module) -> None:
        """Refuse what the method refuses, and to match entropy where there is no attention."""
        self.method.check(model)
        if self.keep == "entropy":
            self.attention_of(model)

    def freeze(self, model: nn.Module) -> None:
        """As the method does."""
        self.method.freeze(model)

    def apply(self, model: nn.Module, generator: Generator, job: Job) -> Tensor | Aim | None:
        """Apply the method, then replace what it set; returns the method's targets. `entropy` needs training images."""
        images_BCHW = None
        if self.keep == "entropy":
            images_BCHW = job.images(IMAGES, "method 'placebo': keep 'entropy'")
        before, views = fingerprints(model), [fingerprint(weight.view) for weight in _weights(model)]
        aim = self.method.apply(model, generator, job)
        changed_by(self.method, model, before, fingerprints(model))
        pairs = zip(views, _weights(model), strict=True)
        weights = [weight for view, weight in pairs if fingerprint(weight.view) != view]
        of_method = [weight.view.clone() for weight in weights]
        entropy_L = measured(model, images_BCHW).entropy if images_BCHW is not None else []

        with one_thread():
            for weight in weights:
                value_HXX = weight.view.flatten(2).cpu().double()
                weight.view.copy_(_treated(self.keep, value_HXX, weight.part, generator).view(weight.view.shape))
        if all(torch.equal(weight.view, old) for weight, old in zip(weights, of_method, strict=True)):
            word = {"spectrum": "rotated", "entries": "shuffled"}.get(self.keep, "gaussian")
            raise VitinitError(
                f"method 'placebo': what {self.of['name']!r} sets in {type(model).__name__} stays as it is when it is "
                f"{word}, which would be no control"
            )
        if images_BCHW is not None:
            _match(model, images_BCHW, entropy_L, weights)
        return aim


class _Weight(NamedTuple):
    """A weight of two or more dimensions: matrices of heads, or one matrix of (out, rest)."""

    name: str
    """The parameter that it is part of."""
    part: str
    """One of W_q, W_k, W_v and W_proj, or empty."""
    view: Tensor
    """Heads (1 where it is not a matter of heads) x rows x columns, which may be several dimensions."""


def _weights(model: nn.Module) -> list[_Weight]:
    """All weights of a model, those of attention first."""
    weights = []
    for layer in survey(model).layers:
        views = {
            "query": layer.query_HdD,
            "key": layer.key_HdD,
            "value": layer.value_DD.unflatten(0, (layer.heads, -1)),
            "proj": layer.proj_DD.unflatten(1, (layer.heads, -1)).transpose(0, 1),
        }
        weights += [_Weight(layer.names_of(part)[0], part, view) for part, view in views.items()]
    known = {position_name(model), *(weight.name for weight in weights)}
    for name, tensor in named_tensors(model).items():
        if name.endswith("weight") and tensor.ndim > 1 and name not in known:
            weights.append(_Weight(name, "", tensor[None]))
    return weights


def _treated(keep: str, value_HXX: Tensor, part: str, generator: Generator) -> Tensor:
    """Return a weight without its pattern.

    W_q and W_k are rotated from the right, each head by a matrix of its own; all else by one, W_proj from the left.
    """
    heads, rows, columns = value_HXX.shape
    if keep == "spectrum":
        size, count = rows if part == "proj" else columns, heads if part in ("query", "key") else 1
        empty_CXX = torch.empty(count, size, size, dtype=torch.float64)
        turns_CXX = torch.stack([nn.init.orthogonal_(empty_XX, generator=generator) for empty_XX in empty_CXX])
        return turns_CXX[0] @ value_HXX if part == "proj" else value_HXX @ turns_CXX
    if keep == "entries":
        order_HE = torch.rand(heads, rows * columns, dtype=torch.float64, generator=generator).argsort(1)
        return value_HXX.flatten(1).gather(1, order_HE).view(value_HXX.shape)
    noise_HXX = torch.randn(value_HXX.shape, dtype=torch.float64, generator=generator)
    norm_H11, noise_norm_H11 = (matrix.norm(dim=(1, 2), keepdim=True) for matrix in (value_HXX, noise_HXX))
    return noise_HXX * (norm_H11 / noise_norm_H11)


def _match(model: nn.Module, images_BCHW: Tensor, entropy_L: list[Tensor], weights: list[_Weight]) -> None:
    """Scale W_q and W_k, as far as they are among `weights`, until every layer has this mean entropy on the images.

    One pass from the input on: a layer is scaled when the images reach it, and goes on with its new weights.
    """

    def scale(layer: AttentionLayer, target: float, tokens: int, _: Any, inputs: tuple[Any, ...], named: Any) -> None:
        names = layer.names_of("query", "key")
        views = [weight.view for weight in weights if weight.name in names and weight.part in ("query", "key")]
        starts, low, high, factor = [view.clone() for view in views], 0.0, math.inf, 1.0
        close = max(CLOSE * min(target, math.log(tokens) - target), ROUNDING * target)
        # bisection: attention is flattest at 0, and its entropy falls as the scale rises
        for trial in range(TRIALS if views else 1):
            if trial:
                factor = 2 * low if high == math.inf else (low + high) / 2
            for view, start in zip(views, starts, strict=True):
                view.copy_(factor * start)
            reached = float(entropies(between_tokens(layer.attention(*inputs, **named), tokens)).mean())
            if abs(reached - target) <= close:
                break
            low, high = (factor, high) if reached > target else (low, factor)
        if not abs(reached - target) <= ENOUGH * target:  # NaN where softmax has rounded every share but one to 0
            raise VitinitError(
                f"method 'placebo': keep 'entropy' cannot be had in {layer.name}, where mean attention entropy is "
                f"{reached:.4g} nats and the method's {target:.4g}, and no scale of W_q and W_k that it sets brings "
                "them together; keep 'spectrum' or 'norm'"
            )

    hooks = [
        layer.module.register_forward_pre_hook(
            partial(scale, layer, float(target.mean()), math.prod(grid)), with_kwargs=True
        )
        for layer, target, grid in zip(attention_layers(model), entropy_L, seen_grids(model), strict=True)
    ]
    with evaluated(model, hooks):
        model(images_BCHW)
