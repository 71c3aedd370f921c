"""LSUV: what each layer gives, by hooks of our own, and the whole algorithm in numpy on two layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_models import ARCHS, applied, f64, generator, images, model
from torch import nn

from vitinit.initializers import registry
from vitinit.initializers.registry import Job

BATCH = 16


def lsuv(m: nn.Module, data: torch.Tensor, **params: Any) -> None:
    def first(count: int) -> torch.Tensor:
        assert count == len(data)
        return data

    method = registry.build("lsuv", {"images": len(data), **params})
    method.apply(m, generator(3), Job(training_images=first))


@pytest.mark.parametrize("arch", ["convit", "convmixer"])
def test_every_output_has_unit_variance_and_every_weight_is_a_scaled_orthonormal_matrix(arch: str) -> None:
    m = applied(model(ARCHS[arch]), "trunc_normal").train()
    lsuv(m, images(BATCH))
    assert m.training, "the mode is as it was"
    found: dict[str, float] = {}
    for name, part in m.named_modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            values = np.linalg.svd(f64(part.weight).reshape(len(part.weight), -1), compute_uv=False)
            np.testing.assert_allclose(values, values[0], rtol=1e-4, err_msg=name)
            assert part.bias is None or not part.bias.any()
            part.register_forward_hook(lambda _, __, out, name=name: found.update({name: f64(out).std()}))
    with torch.no_grad():
        m.eval()(images(BATCH))
    assert len(found) > 5
    assert all(abs(std - 1) <= 0.1 + 1e-4 for std in found.values())


def test_two_layers_by_numpy() -> None:
    m = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))
    data = 3 * torch.randn(BATCH, 6, generator=generator(5)) + 1
    lsuv(m, data, tolerance=0.01, tries=2)
    x = f64(data)
    for layer in (m[0], m[2]):
        weight = f64(layer.weight) / np.linalg.norm(f64(layer.weight), 2)
        weight /= (x @ weight.T).std()
        np.testing.assert_allclose(f64(layer.weight), weight, atol=1e-4)
        x = np.maximum(x @ weight.T, 0)
