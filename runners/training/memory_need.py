"""Prediction of a GPU's memory that a step needs, from two small ones, before it is too much."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from vitinit.benchmark.spec import Recipe
from vitinit.runners.training.train import autocast

TRIED = (4, 8)
"""Images of the two small steps."""
USABLE = 0.95
"""Share of the memory that tensors can take, the rest being lost between them."""


def advice(peak: Callable[[int], int], images: int, beside: int, capacity: int, whole: bool = False) -> str:
    """Return a warning with the largest micro batch that fits, a power of two; empty where all images fit.

    Args:
        peak: bytes that are allocated at most in a step of so many images.
        images: of a step.
        beside: bytes that a step of training needs beyond that, whatever its images.
        capacity: bytes that there are.
        whole: batches cannot be cut, as the model takes statistics over them.
    """
    if images <= TRIED[1]:
        return ""
    few, more = (peak(count) for count in TRIED)
    each = max(0.0, (more - few) / (TRIED[1] - TRIED[0]))
    fixed, usable = more - TRIED[1] * each + beside, USABLE * capacity
    if fixed + images * each <= usable:
        return ""
    fitting = max(1, int((usable - fixed) / each)) if each and usable > fixed else 1
    fitting = 2 ** (fitting.bit_length() - 1)
    need, there = ((size / 2**30) for size in (fixed + images * each, capacity))
    remedy = f"a batch_size of {fitting}" if whole else f"--micro-batch {fitting}"
    return f"a step of {images} images needs about {need:.1f} GiB, and the GPU has {there:.1f}: {remedy} would fit"


def warning(
    model: nn.Module, recipe: Recipe, image_size: int, device: torch.device, images: int, whole: bool = False
) -> str:
    """Return `advice` for the training of a model on a GPU; empty on a CPU, and where it cannot be tried.

    Two small steps are taken by a copy: the model, its gradients and the global generators stay as they are.
    """
    if device.type != "cuda":
        return ""
    own = sum(each.numel() * each.element_size() for each in model.parameters() if each.requires_grad)
    try:
        with torch.random.fork_rng(devices=[device]):
            tried = copy.deepcopy(model).train()

            def peak(count: int) -> int:
                tried.zero_grad()
                torch.cuda.reset_peak_memory_stats(device)
                pixels = torch.zeros(count, 3, image_size, image_size, device=device)
                with autocast(recipe, device):
                    loss = tried(pixels).float().square().mean()
                loss.backward()
                return torch.cuda.max_memory_allocated(device)

            # the copy's weights are as large as one moment of an optimiser; most have two
            capacity = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
            return advice(peak, images, own, capacity, whole)
    except Exception:  # somebody's model that cannot be copied; or not even this fits, which the first step says
        return ""
