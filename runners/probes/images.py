"""Choice of held-out images for probes."""

from __future__ import annotations

import torch
from torch import Tensor

from vitinit.runners.basics.streams import stream


def chosen(available: int, count: int) -> Tensor:
    """Numbers of held-out images, the same in every run on them: from all over a split that may be sorted by class."""
    return torch.randperm(available, generator=stream(0, "maps"))[:count]
