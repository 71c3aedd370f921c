"""What attention has kept of the target of its method."""

from __future__ import annotations

import torch
from torch import Tensor

from runners.probes.registry import Seen, probe


@probe
def impulse_mass(seen: Seen) -> Tensor | None:
    """Attention on the target, of the layers that have one, x H."""
    return None if seen.targets_LHNN is None else target_mass(seen.attention.maps_LHNN, seen.targets_LHNN)


def target_mass(maps_LHNN: Tensor, targets_LHNN: Tensor) -> Tensor:
    """Attention on the target, L x H: a mean over the queries that have one.

    Args:
        maps_LHNN: attention.
        targets_LHNN: 0 and 1; of as many layers, from the first on, as have a target.
    """
    masses = [
        (maps_HNN * targets_HNN).sum((-2, -1)) / targets_HNN.any(-1).sum(-1)
        for maps_HNN, targets_HNN in zip(maps_LHNN, targets_LHNN.to(maps_LHNN.device), strict=False)
    ]
    return torch.stack(masses)
