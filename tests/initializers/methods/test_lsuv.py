"""LSUV: what each layer gives, by hooks of our own, and the whole algorithm in numpy on two layers."""

import numpy as np
import torch
from small_models import CONVIT, applied, f64, generator, images, model
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
