"""Operations of a model, as torch counts them."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitinit.benchmark.models.build import CLASSES, IMAGES, without_values


def operations(spec):
    """Return those of one image in a forward pass of a few: two for a multiplication and its addition."""
    images_BCHW = torch.zeros(IMAGES, 3, spec.image_size, spec.image_size, device="meta")
    # attention as plain products: some versions of torch do not count those of the fused kernels
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad(), FlopCounterMode(display=False) as counter:
        without_values(spec, CLASSES).eval()(images_BCHW)
    return counter.get_total_flops() / IMAGES
