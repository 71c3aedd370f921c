"""Method `lsuv`: orthonormal weights, scaled layer by layer until every output has unit variance."""

from __future__ import annotations

import math
from collections import Counter
from typing import ClassVar

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from vitinit.initializers.adapter import Attention, found
from vitinit.initializers.adapters import kind_of
from vitinit.initializers.attention import evaluated
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.registry import Initializer, Job, register
from vitinit.initializers.threads import one_thread


@register
class Lsuv(Initializer):
    """Layer-sequential unit variance (Mishkin and Matas, arXiv 1511.06422), on one batch of training images.

    Every Linear and convolution, the head included, gets orthonormal rows or columns and bias 0. Then, from the first
    to the last, each weight is divided by the standard deviation of its outputs until that is within `tolerance` of 1.

    Traps. The authors' code goes by the order of registration; here it is that of execution, which is the same in a
    ViT and not in a ConViT. W_q, W_k and W_v are drawn and scaled as one, whether they are one Linear or three.
    LayerNorm makes later layers blind to the scale of earlier ones, and with unit outputs of every branch the residual
    stream grows like the root of twice the depth. The Linear of CaiT that mixes heads after the softmax sees small
    numbers, so it gets large weights.
    """

    name: ClassVar[str] = "lsuv"
    touches: ClassVar[tuple[str, ...]] = ("*.weight", "*.bias")

    images: PositiveInt = 64
    """Training images in the batch."""
    tolerance: PositiveFloat = 0.1
    tries: int = Field(10, ge=0)
    """A layer is corrected at most once more than this, as in the authors' code."""
    center: bool = False
    """Move the bias by the mean output with each correction: the authors' code does, the paper does not."""

    def check(self, model: nn.Module) -> None:
        """Refuse attention that does not call its Linears, so that nobody sees what they give."""
        super().check(model)
        for name, part in model.named_modules():
            kind = kind_of(part)
            if isinstance(kind, Attention):
                home = kind.query.weight.rpartition(".")[0]
                own_bias = kind.query.bias in ("", f"{home}.bias") or found(part, kind.query.bias) is None
                if not (home and own_bias):
                    raise VitinitError(
                        f"method 'lsuv' on {type(model).__name__}: {name or 'it'} ({type(part).__name__}) uses W_q, "
                        "W_k and W_v without calling a Linear, so that nobody sees their outputs; choose another model"
                    )

    @torch.no_grad()
    def apply(self, model: nn.Module, generator: torch.Generator, job: Job) -> None:
        """Set every Linear and convolution.

        Raises:
            VitinitError: there are no training images, or a layer is not called just once in a forward pass.
        """
        images_BCHW = job.images(self.images, "method 'lsuv'")
        units = _in_order(model, images_BCHW)
        for unit in units:
            rows = [len(layer.weight) for layer in unit]
            joined = orthonormal(torch.Size([sum(rows), *unit[0].weight.shape[1:]]), generator)
            for layer, drawn in zip(unit, joined.split(rows), strict=True):
                layer.weight.copy_(drawn)
                if layer.bias is not None:
                    layer.bias.zero_()
        for done, unit in enumerate(units):
            job.progress(done, len(units))
            for _ in range(self.tries + 1):
                mean, std = _output(model, unit, images_BCHW)
                if abs(std - 1) <= self.tolerance:
                    break
                if not 0 < std < math.inf:
                    name = next(name for name, part in model.named_modules() if part is unit[0])
                    raise VitinitError(
                        f"method 'lsuv': the outputs of {name} have standard deviation {std:g} on these images, which "
                        "no scale makes 1: give other images, or norms and layer scales that are not 0"
                    )
                for layer in unit:
                    layer.weight /= std + 1e-8
                    if self.center and layer.bias is not None:
                        layer.bias -= mean / (std + 1e-8)


def orthonormal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Rows (what leads to one output) orthonormal, or columns where these are fewer; from the SVD of a Gaussian."""
    drawn = torch.empty(shape[0], shape[1:].numel()).normal_(generator=generator)
    with one_thread():
        u, _, vh = torch.linalg.svd(drawn.double(), full_matrices=False)
    return (u if u.shape == drawn.shape else vh).float().view(shape)


Layer = nn.Linear | nn.Conv2d


def _in_order(model: nn.Module, images_BCHW: Tensor) -> list[list[Layer]]:
    """Every Linear and convolution, from the first that is carried out to the last; W_q, W_k and W_v are one."""
    layers = {name: part for name, part in model.named_modules() if isinstance(part, Layer)}
    calls: Counter[Layer] = Counter()
    hooks = [layer.register_forward_hook(lambda module, *_: calls.update([module])) for layer in layers.values()]
    with evaluated(model, hooks):
        model(images_BCHW)
    for name, layer in layers.items():
        if calls[layer] != 1:
            raise VitinitError(
                f"method 'lsuv': {name} is called {calls[layer]} times in a forward pass of {type(model).__name__}, "
                "and its output is seen only where it is called once"
            )
    joined: dict[Layer, list[Layer]] = {}
    for module in model.modules():
        kind = kind_of(module)
        if isinstance(kind, Attention) and not kind.gated:
            parts = (kind.query, kind.key, kind.value)
            homes = list(dict.fromkeys(found(module, part.weight.rpartition(".")[0]) for part in parts))
            joined |= dict.fromkeys(homes, homes)
    units = [joined.get(layer, [layer]) for layer in calls]
    return [unit for at, unit in enumerate(units) if unit not in units[:at]]


def _output(model: nn.Module, unit: list[Layer], images_BCHW: Tensor) -> tuple[float, float]:
    """Mean and standard deviation over all entries of what layers give when the model sees the images."""
    seen: list[Tensor] = []

    def keep(_: nn.Module, given: object, output: Tensor) -> None:
        seen.append(output.cpu().double().flatten())

    with evaluated(model, [layer.register_forward_hook(keep) for layer in unit]):
        model(images_BCHW)
    values = torch.cat(seen) if len(seen) > 1 else seen[0]
    return float(values.mean()), float(values.std(unbiased=False))
