"""Attention mass that is still on the target of its method."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vitinit.runners.probes.registry import Seen, probe


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
