"""How spread out attention is."""

from __future__ import annotations

from torch import Tensor

from vitinit.runners.probes.registry import Seen, probe


@probe
def attention_entropy(seen: Seen) -> list[Tensor]:
    """Of a query's attention in one image, mean, by layer and head, in nats."""
    return seen.attention.entropy
