"""Entropy of attention."""

from torch import Tensor

from vitinit.runners.probes.registry import Seen, probe


@probe
def attention_entropy(seen: Seen) -> list[Tensor]:
    """Compute the entropy of a query's attention in one image, mean, by layer and head, in nats."""
    return seen.attention.entropy
