"""Probes: measurements of attention, each a decorated function; their interface and registry."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from vitinit.benchmark.metrics import registry as metrics
from vitinit.initializers import plugins
from vitinit.initializers.attention import AT_ONCE, attention_layers, evaluated, rotary, token_grid
from vitinit.initializers.diagnostics import AttentionStatistics, measured
from vitinit.initializers.diagnostics import nonlocality as mean_distance
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import Registry


@dataclass(frozen=True)
class Seen:
    """Input of a probe. One of your own has copies, and may change them: no number of the run depends on it."""

    model: nn.Module
    """With attention."""
    images_BCHW: Tensor
    """Held out, the same in every run on a dataset; on the model's device."""
    targets_LHNN: Tensor | None = None
    """Targets of the method's attention, of the layers that have one; None where it has none."""

    @cached_property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the token grid."""
        return token_grid(self.model)

    @cached_property
    def attention(self) -> AttentionStatistics:
        """Mean maps and mean entropy of all layers on these images."""
        return measured(self.model, self.images_BCHW)


Measure = Callable[[Seen], Tensor | Sequence[Tensor] | None]
"""Numbers by layer, or by layer and head, from the input on; None where the model has nothing of the kind."""

REGISTRY: Registry[Measure] = Registry(
    "probe",
    ("vitinit.runners.probes",),
    wanted="a Metric class, nor a function (a probe)",
    accepts=inspect.isroutine,
    name=lambda measure: measure.__name__,
)

probe = REGISTRY.put
"""Decorator that registers a probe under the name of its function. A field of this name in
`benchmark.records.record.Probe` holds it; without one it stands under `more`."""
probes = REGISTRY.by_name


def load_measure(name: str) -> None:
    """Register a probe or metric of one's own.

    Raises:
        VitinitError: it is neither, its name is taken, or it cannot be loaded.
    """
    measure = plugins.load(name)
    registry: Registry[Any] = metrics.REGISTRY if metrics.REGISTRY.accepts(measure) else REGISTRY
    registry.load(measure, name)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Blocks that hold attention, from the input on.

    Raises:
        VitinitError: no adapter knows the attention, or its tokens come before the images.
    """
    layers = attention_layers(model)
    if not all(getattr(layer.module, "batch_first", True) for layer in layers):
        raise VitinitError("tokens come before the images (batch_first=False)")
    return list(dict.fromkeys(layer.module if layer.block is None else layer.block for layer in layers))


def patch_tokens(output: Any, grid: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
    """The patch tokens of a block's output, B x N x D, and their rows and columns.

    Args:
        output: B x N x D, tokens without a place first, or B x rows x columns x D where stages have grids of their own;
            or a tuple that begins with it.
        grid: of the first tokens.
    """
    output = output[0] if isinstance(output, tuple) else output
    if output.ndim == 4:
        rows, columns = output.shape[1:3]
        return output.flatten(1, 2), (rows, columns)
    return output[:, output.shape[1] - grid[0] * grid[1] :], grid


@probe
def attention_entropy(seen: Seen) -> list[Tensor]:
    """Compute the entropy of a query's attention in one image, mean, by layer and head, in nats."""
    return seen.attention.entropy


@probe
def nonlocality(seen: Seen) -> list[Tensor]:
    """Mean distance from query to key, by layer and head, in tokens (arXiv 2103.10697, equation 8)."""
    return list(map(mean_distance, seen.attention.maps, seen.attention.grids))


@probe
@torch.no_grad()
def nonlocality_reference(seen: Seen) -> list[Tensor] | None:
    """Nonlocality of every layer's maps on the bare patch embedding, as the released ConViT code takes them.

    No position embedding, no LayerNorm, and no layer before; so these are not maps that the model ever has. None where
    there are none of bare patches: in windows, with rotations, or without timm's patch embedding.
    """
    layers = attention_layers(seen.model)
    # BEiT's biases are of a class token, too
    if any(layer.window for layer in layers) or rotary(seen.model) or not hasattr(seen.model, "patch_embed"):
        return None
    sums: list[Any] = [0.0] * len(layers)
    for few_BCHW in seen.images_BCHW.split(AT_ONCE):
        tokens_bND = seen.model.patch_embed(few_BCHW)  # type: ignore[operator]
        for number, layer in enumerate(layers):
            sums[number] += layer.attention(tokens_bND).sum(0)
    return [mean_distance(sum_HNN / len(seen.images_BCHW), seen.grid) for sum_HNN in sums]


@probe
def gating(seen: Seen) -> Tensor | None:
    """Sigmoid of the gate, the share of positional attention: of the GPSA layers, x H."""
    gates = [layer.module.gating_param.detach().sigmoid() for layer in attention_layers(seen.model) if layer.gated]
    return torch.stack(gates) if gates else None


@probe
def impulse_mass(seen: Seen) -> Tensor | None:
    """Attention on the target, of the layers that have one, x H."""
    return None if seen.targets_LHNN is None else target_mass(seen.attention.maps, seen.targets_LHNN)


def target_mass(maps: Sequence[Tensor] | Tensor, targets_LHNN: Tensor) -> Tensor:
    """Attention on the target, L x H: a mean over the queries that have one.

    Args:
        maps: attention of each layer, H x N x N.
        targets_LHNN: 0 and 1; of as many layers, from the first on, as have a target.
    """
    masses = [
        (maps_HNN * targets_HNN).sum((-2, -1)) / targets_HNN.any(-1).sum(-1)
        for maps_HNN, targets_HNN in zip(maps, targets_LHNN.to(maps[0].device), strict=False)
    ]
    return torch.stack(masses)


RECEPTIVE_FIELD_IMAGES = 4
"""Number of the probe's images whose gradients are taken."""


@probe
def effective_receptive_field(seen: Seen) -> Tensor:
    """Radius of the effective receptive field of each block, L, in patches.

    The absolute gradient of the central token's output with respect to the pixels, mean over images and channels (Luo
    et al., NeurIPS 2016, arXiv 1701.04128), added up patch by patch: the distance from the central token that its mean,
    weighted by this, has. The output's features are added up with alternating signs, less their mean: a plain sum is
    what every LayerNorm that reads the token takes away. Where the model ends in a class token, nothing reads the patch
    tokens of the last block.
    """
    model, (rows, columns) = seen.model, seen.grid
    outputs = []
    hooks = [block.register_forward_hook(lambda _, __, output: outputs.append(output)) for block in blocks_of(model)]
    pixels_BCHW = seen.images_BCHW[:RECEPTIVE_FIELD_IMAGES].detach().clone().requires_grad_()
    with evaluated(model, hooks), torch.enable_grad():
        model(pixels_BCHW)
    radii = []
    for output in outputs:
        tokens_BND, (high, wide) = patch_tokens(output, seen.grid)
        signs_D = 1 - 2.0 * (torch.arange(tokens_BND.shape[-1], device=tokens_BND.device) % 2)
        summed = (tokens_BND[:, high // 2 * wide + wide // 2] @ (signs_D - signs_D.mean())).sum()
        (gradient_BCHW,) = torch.autograd.grad(summed, pixels_BCHW, retain_graph=True)
        gradients = gradient_BCHW.abs().mean((0, 1)).unflatten(1, (columns, -1)).unflatten(0, (rows, -1))
        per_patch_N = gradients.sum((1, 3)).flatten()
        # from the middle of the central token, which may be several patches wide
        places = [
            torch.arange(patches).double() - (tokens // 2 + 0.5) * patches / tokens + 0.5
            for patches, tokens in ((rows, high), (columns, wide))
        ]
        distance_N = torch.cartesian_prod(*places).norm(dim=1).to(pixels_BCHW)
        radii.append((per_patch_N * distance_N).sum() / per_patch_N.sum().clamp_min(torch.finfo(torch.float32).tiny))
    return torch.stack(radii)
