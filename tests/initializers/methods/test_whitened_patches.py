"""Whitened patches: features of the images in numpy, with patches cut by hand."""

import numpy as np
import pytest
import torch
from small_models import ARCHS, applied, differing, f64, images, model, state
from torch import nn

import vitinit


@pytest.mark.parametrize(("arch", "epsilon"), [("vit", 0.1), ("convmixer", 1e-9), ("vit", 1e-9)])
def test_features_are_uncorrelated_and_of_known_variance_and_come_twice_with_both_signs(arch, epsilon):
    """E / sqrt(lambda + epsilon) makes variances of lambda / (lambda + epsilon), nearly 1 without epsilon."""
    m, batch = applied(model(ARCHS[arch]), "trunc_normal"), images(40)
    before = state(m)
    vitinit.initialize(m, {"name": "whitened_patches", "images": 40, "epsilon": epsilon}, batch=batch)
    name, conv = next((name, part) for name, part in m.named_modules() if isinstance(part, nn.Conv2d))
    weight, side = conv.weight.detach(), conv.kernel_size[0]
    own = weight[0].numel()
    cut = f64(batch).reshape(40, 3, 32 // side, side, 32 // side, side)
    patches = cut.transpose(0, 2, 4, 1, 3, 5).reshape(-1, own)
    features = patches @ f64(weight[:own]).reshape(-1, own).T
    values = np.linalg.eigvalsh(patches.T @ patches / len(patches))[::-1][: features.shape[1]]
    covariance = features.T @ features / len(features)
    np.testing.assert_allclose(covariance, np.diag(values / (values + epsilon)), atol=1e-3)
    doubled = weight[own : 2 * own]
    torch.testing.assert_close(doubled, -weight[: len(doubled)])
    assert differing(before, state(m)) == {f"{name}.weight"}
    assert torch.equal(weight[2 * own :], before[f"{name}.weight"][2 * own :]), "further rows keep their base"
