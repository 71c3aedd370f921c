"""Proposition 1 of arXiv 2404.01139 by numbers: what fixed f x f filters, one a channel, miss of a random target.

The patch embeddings X of images have rank k. From D = k f^2 channels on, the best channel mixing behind random filters
misses nothing. Activations, norms and skips are left out, as in the paper.
"""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

OUTPUTS, SIDE = 8, 3
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
images = torch.tensor(load_digits().images)[:64, None] / 16


def error(width: int, filters: torch.Tensor) -> float:
    """Residual of the best mixing, relative to the target: random filters from every channel to every output."""
    x_BDhw = F.conv2d(images, embed_D[:width], stride=2)
    target_MO, spatial_MD = (
        F.conv2d(x_BDhw, weight, padding="same", groups=groups).movedim(1, -1).flatten(0, -2)
        for weight, groups in ((torch.randn(OUTPUTS, width, SIDE, SIDE), 1), (filters[:, None], width))
    )
    mixing_DO = torch.linalg.lstsq(spatial_MD, target_MO, driver="gelsd").solution  # filters may be dependent
    return float((target_MO - spatial_MD @ mixing_DO).norm() / target_MO.norm())


embed_D = torch.randn(200, 1, 2, 2)
k = int(torch.linalg.matrix_rank(F.conv2d(images, embed_D, stride=2).movedim(1, -1).flatten(0, -2)))
for share in (0.5, 1, 2):
    D = round(share * k * SIDE**2)
    print(f"D = {share:g} k f^2 = {D}: random {error(D, torch.randn(D, SIDE, SIDE)):.0e}", end=", ")
    print(f"box {error(D, torch.ones(D, SIDE, SIDE)):.0e}")
