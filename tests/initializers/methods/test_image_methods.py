"""Methods that look at images: what each layer gives, by hooks and numpy of our own."""

import numpy as np
import pytest
import torch
from small_models import ARCHS, CONVIT, applied, differing, f64, generator, images, model, state
from torch import nn

import vitinit


def test_every_output_has_unit_variance_and_every_weight_is_a_scaled_orthonormal_matrix():
    m = applied(model(CONVIT), "kaiming_uniform")
    vitinit.initialize(m, "lsuv", batch=images(16))
    deviations = {}
    for name, part in m.named_modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            values = np.linalg.svd(f64(part.weight).reshape(len(part.weight), -1), compute_uv=False)
            np.testing.assert_allclose(values, values[0], rtol=1e-4, err_msg=name)
            assert part.bias is None or not part.bias.any()
            part.register_forward_hook(lambda _, __, out, name=name: deviations.update({name: f64(out).std()}))
    with torch.no_grad():
        m(images(16))
    assert len(deviations) > 5
    assert all(abs(std - 1) <= 0.1 + 1e-4 for std in deviations.values())


def test_two_layers_by_numpy():
    m = nn.Sequential(nn.Flatten(), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
    m.phases = nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))  # comes first, and says nothing of images
    data = 3 * torch.randn(16, 6, 1, 1, generator=generator(5)) + 1
    vitinit.initialize(m, {"name": "lsuv", "images": 16, "tolerance": 0.01, "tries": 2}, batch=data)
    x = f64(data).reshape(16, 6)
    for layer in (m[1], m[3]):
        weight = f64(layer.weight) / np.linalg.norm(f64(layer.weight), 2)
        weight /= (x @ weight.T).std()
        np.testing.assert_allclose(f64(layer.weight), weight, atol=1e-4)
        x = np.maximum(x @ weight.T, 0)


# --- whitened patches ---


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
