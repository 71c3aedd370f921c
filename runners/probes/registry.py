"""Registry and interface of probes: each is one decorated function in a file of `quantities/`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from vitinit.initializers.attention import attention_layers, token_grid
from vitinit.initializers.diagnostics import AttentionStatistics, measured
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.plugins import Registry


@dataclass(frozen=True)
class Seen:
    """Input of a probe, which leaves the model unchanged and draws no random number."""

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

REGISTRY: Registry[Measure] = Registry("probe", (f"{__package__}.quantities",), name=lambda measure: measure.__name__)


probe = REGISTRY.put
"""Decorator that registers a probe under the name of its function. A field of this name in
`benchmark.records.record.Probe` holds it; without one it stands under `more`."""
probes = REGISTRY.by_name


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
