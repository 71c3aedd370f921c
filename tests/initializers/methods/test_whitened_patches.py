"""Whitened patches: features of the images in numpy, with patches cut by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import ARCHS, applied, f64, images, model, refused
from torch import nn

import vitinit

BATCH = images(40)


def cut(size: int) -> np.ndarray:
    """All patches of the batch, of shape patches x numbers."""
    data = f64(BATCH)
    side = data.shape[-1] // size * size
    patches = [
        data[:, :, top : top + size, left : left + size].reshape(len(data), -1)
        for top in range(0, side, size)
        for left in range(0, side, size)
    ]
    return np.concatenate(patches)


@pytest.mark.parametrize("epsilon", [1e-9, 0.1])
@pytest.mark.parametrize("arch", ["vit", "convmixer"])
def test_features_are_uncorrelated_and_of_known_variance_and_come_twice_with_both_signs(
    arch: str, epsilon: float
) -> None:
    """E / sqrt(lambda + epsilon) makes variances of lambda / (lambda + epsilon), nearly 1 without epsilon."""
    m = applied(model(ARCHS[arch]), "trunc_normal")
    before = {name: value.clone() for name, value in m.state_dict().items()}
    vitinit.initialize(m, {"name": "whitened_patches", "images": 40, "epsilon": epsilon}, images=BATCH)
    conv = next(part for part in m.modules() if isinstance(part, nn.Conv2d))
    own = conv.weight[0].numel()
    patches = cut(conv.kernel_size[0])
    made = patches @ f64(conv.weight[:own]).reshape(-1, own).T
    values = np.linalg.eigvalsh(patches.T @ patches / len(patches))[::-1][: made.shape[1]]
    np.testing.assert_allclose(made.T @ made / len(made), np.diag(values / (values + epsilon)), atol=1e-3)
    doubled = conv.weight[own : 2 * own]
    torch.testing.assert_close(doubled, -conv.weight[: len(doubled)])
    changed = {name for name, value in m.state_dict().items() if not torch.equal(value, before[name])}
    assert len(changed) == 1
    key = changed.pop()
    torch.testing.assert_close(
        m.state_dict()[key][2 * own :], before[key][2 * own :], msg="further rows keep their base"
    )


def test_without_patches_or_images_it_is_refused_and_nothing_is_changed() -> None:
    refused(
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2)),
        "patches that do not overlap",
        "whitened_patches",
    )
