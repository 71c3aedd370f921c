"""The gates of ConViT."""

import torch
from torch import Tensor

from vitinit.initializers.attention import attention_layers
from vitinit.runners.probes.registry import Seen, probe


@probe
def gating(seen: Seen) -> Tensor | None:
    """Sigmoid of the gate, the share of positional attention: of the GPSA layers, x H."""
    gates = [layer.module.gating_param.detach().sigmoid() for layer in attention_layers(seen.model) if layer.gated]
    return torch.stack(gates) if gates else None
