"""Optimisers of torch that timm has no name for, and that work with `step()` alone."""

from __future__ import annotations

import torch

from vitinit.benchmark.optimizers.registry import register

register("asgd")(torch.optim.ASGD)
register("rprop")(torch.optim.Rprop)
