"""Registry and interface of probes: each is one decorated function in a file of `quantities/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

from vitinit.initializers.attention import token_grid
from vitinit.initializers.diagnostics import AttentionStatistics, measured
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


def probe(measure: Measure) -> Measure:
    """Register a probe under the name of its function.

    A field of this name in `benchmark.records.record.Probe` holds it; without one it stands under `more`.
    """
    return REGISTRY.put(measure)


probes = REGISTRY.by_name
