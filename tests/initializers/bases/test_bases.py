"""Bases against paper-facts 1.6, the libraries that they are of, and their formulas in numpy."""

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import torch
import yaml
from small_models import TINY, VIT, applied, assert_normal, assert_uniform, f64, model

WIDE = TINY.model_copy(update={"patch_size": 4, "position": "learned", "pool": "token"})
ODD = VIT.model_copy(update={"width": 60, "heads": 5})


def based(base, spec=ODD, **params):
    m = model(spec)
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.fill_(float("nan"))
    return applied(m, base, 1, **params)


STATED = yaml.safe_load(Path(__file__).with_name("stated.yaml").read_bytes())["bases"]
CHECKS = {
    "equal": np.testing.assert_array_equal,
    "uniform": lambda values, fan_in: assert_uniform(values, fan_in**-0.5),
    "xavier": lambda values, fans: assert_uniform(values, math.sqrt(6 / fans)),
    "normal": assert_normal,
    "scaled": lambda values, number: assert_normal(values, number**-0.5),
}


@pytest.mark.parametrize("base", STATED)
def test_every_parameter_is_as_stated(base):
    m = based("trunc_normal", WIDE, std="kaiming") if base == "kaiming" else based(base, WIDE)
    block = m.blocks[0]
    layers = {"qkv": block.attn.qkv, "proj": block.attn.proj, "fc1": block.mlp.fc1, "fc2": block.mlp.fc2}
    values = {"class": m.cls_token, "position": m.pos_embed}
    for name, layer in {**layers, "head": m.head, "patch": m.patch_embed.proj}.items():
        values |= {name: layer.weight, f"{name}.bias": layer.bias}
    for name, stated in STATED[base].items():
        pieces = values[name].chunk(3) if name == "qkv" and base in ("jax_vit", "moco_v3") else [values[name]]
        for value in map(f64, pieces):
            ((check, number),) = stated.items()
            CHECKS[check](value, number)
    for norm in (block.norm1, m.norm):
        assert (norm.weight == 1).all()
        assert not norm.bias.any()
    assert torch.equal(based(base, VIT).pos_embed, model(VIT).pos_embed) if base != "kaiming" else True


def weights(m):
    """W_q, W_k, W_v, and those of the first MLP and the head."""
    linears = (m.blocks[0].mlp.fc1, m.blocks[0].mlp.fc2, m.head)
    return [*np.split(f64(m.blocks[0].attn.qkv.weight), 3), *(f64(part.weight) for part in linears)]


@pytest.mark.parametrize(("spec", "how", "pieces"), [(VIT, "fused", 1), (ODD, "per_matrix", 3), (ODD, "per_head", 15)])
def test_orthogonal_rows_or_columns_of_what_is_taken_as_one_matrix(spec, how, pieces):
    m = based("orthogonal", spec, qkv=how, gain=1.5)
    patch = f64(m.patch_embed.proj.weight).reshape(spec.width, -1)
    for weight in [*np.split(f64(m.blocks[0].attn.qkv.weight), pieces), *weights(m)[3:], patch]:
        np.testing.assert_allclose(np.linalg.svd(weight, compute_uv=False), 1.5, rtol=1e-5)


def test_spectral_norms_are_those_of_the_paper():
    for weight in weights(based("spectral")):
        norm = math.sqrt(weight.shape[0] / weight.shape[1])
        np.testing.assert_allclose(np.linalg.svd(weight, compute_uv=False), norm, rtol=1e-5)


def test_sines_by_loops_and_their_rank():
    matrices = weights(based("sinusoidal"))
    assert np.linalg.matrix_rank(matrices[0], tol=1e-6) == ODD.width // 2 - 1
    for weight in matrices:
        rows, columns = weight.shape
        i, j = np.arange(1, rows + 1)[:, None], np.arange(columns)
        waves = np.sin(i * (2 * math.pi * j / columns + 2 * math.pi / rows))
        np.testing.assert_allclose(weight, waves * math.sqrt(2 / (rows + columns) / waves.var(ddof=1)), atol=1e-6)


def test_zero_is_identities_and_scipys_hadamard():
    m = based("zero")
    hadamard = scipy.linalg.hadamard(256)[:240, :60] * 2**-4
    expected = [*[np.eye(60)] * 3, hadamard, np.zeros((60, 240)), np.eye(10, 60)]
    for weight, matrix in zip(weights(m), expected, strict=True):
        np.testing.assert_allclose(weight, matrix, rtol=1e-6)
    assert not m.blocks[1].attn.proj.weight.any()


def test_idinit_by_loops():
    m = based("idinit", tau=0.5, eps=1e-3, loose=0.0)

    def repeated(rows, columns):
        short = min(rows, columns)
        return np.array([[float(i % short == j % short) for j in range(columns)] for i in range(rows)])

    *qkv, fc1, fc2, head = weights(m)
    for matrix in [*qkv, fc1, head]:
        np.testing.assert_array_equal(matrix, 0.5 * repeated(*matrix.shape))
    proj, last = 1e-3 * (np.eye(60) - np.roll(np.eye(60), 1, axis=1)), -1e-3 * repeated(60, 240)
    last[:, :60] *= -1
    np.testing.assert_allclose(f64(m.blocks[0].attn.proj.weight), proj, atol=1e-9)
    np.testing.assert_allclose(fc2, last, atol=1e-9)
    assert_normal(weights(based("idinit", loose=0.1))[0] - np.eye(60), 0.1)
