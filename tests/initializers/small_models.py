"""Models, streams and float64 copies that the tests of the initialisers share."""

import importlib
import math
import random
import zlib

import numpy as np
import pytest
import torch

import vitinit
from vitinit.benchmark.grids.grid import resolve_model
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.convit import ConViT
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.spec import model_spec
from vitinit.initializers import registry

CLASSES = 10
JOB = registry.Job()

VIT = ViT(image_size=32, patch_size=4, width=48, depth=2, heads=4)
VIT_TOKEN = VIT.model_copy(update={"position": "learned", "pool": "token"})
CONVIT = ConViT(
    image_size=32,
    patch_size=4,
    width=48,
    depth=3,
    heads=4,
    qkv_bias=False,
    position="learned",
    pool="token",
    gpsa_layers=2,
)
CONVMIXER = resolve_model({"preset": "convmixer_micro", "image_size": 32, "patch_size": 4, "width": 48, "depth": 2})
ARCHS = {"vit": VIT, "vit_token": VIT_TOKEN, "convit": CONVIT, "convmixer": CONVMIXER}

TINY = ViT(image_size=32, patch_size=2, width=192, depth=1, heads=3)
"""ViT-T with patch 2 at 32 px as in arXiv 2404.01139: 256 tokens, 3 heads of 64; one layer of its twelve."""


def model(spec=VIT, seed=0, **changes):
    """A model whose own construction draws from a global seed, evaluated without dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model(model_spec({**spec.model_dump(), **changes}), CLASSES).eval()


def streams(seed):
    return lambda name: torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def state(m):
    return {name: value.detach().clone() for name, value in m.state_dict().items()}


def differing(a, b):
    """Names whose bits differ; of a parameter that nothing has set yet some may mean NaN, which equals nothing."""

    def bits(tensor):
        return tensor.contiguous().flatten().view(torch.uint8)

    assert a.keys() == b.keys()
    return {name for name in a if not torch.equal(bits(a[name]), bits(b[name]))}


def facts(m):
    """All of a model but its numbers: the objects, where they lie, what is trained, modes, gradients, hooks."""
    tensors = [
        (name, id(tensor), tensor.data_ptr(), tensor.dtype)
        for name, tensor in (*m.named_parameters(), *m.named_buffers())
    ]
    trained = [(parameter.requires_grad, id(parameter.grad)) for parameter in m.parameters()]
    hooks = [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in m.modules()]
    return [tensors, trained, hooks, [(id(module), module.training) for module in m.modules()]]


def global_state():
    """State of the process that code may change: random generators, the default type, whether gradients are kept."""
    drawn = [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]
    return [*drawn, torch.get_default_dtype(), torch.is_grad_enabled()]


def applied(m, name, seed=0, **params):
    """The model, after a base or a method."""
    with torch.no_grad():
        registry.build(name, params).apply(m, generator(seed), JOB)
    return m


def tiny(**more):
    """A ViT of timm, as a user makes it."""
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4, "num_classes": 3, **more}
    return importlib.import_module("timm.models").VisionTransformer(**sizes)


def refused(m, says, method=None, **asked):
    """`vitinit.initialize` refuses in one line, and the model stays as it is, bit for bit."""
    before = state(m)
    with pytest.raises(vitinit.VitinitError, match=says):
        vitinit.initialize(m, method, **asked)
    assert differing(before, state(m)) == set()


def images(count=2, size=32, seed=0):
    return torch.randn(count, 3, size, size, generator=generator(seed))


def f64(tensor):
    return tensor.detach().cpu().double().numpy()


def layer_norm(x, eps=1e-5):
    """Zero mean and unit variance over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)


SIGMAS = 5.0
"""Allowed sampling errors; the seeds are fixed, so a test that passes once passes always."""


def assert_uniform(values, bound):
    n, std = values.size, bound / math.sqrt(3)
    assert bound * (1 - 12 / n) <= np.abs(values).max() <= bound * (1 + 1e-6), "12/n: missed with probability e^-12"
    assert abs(values.mean()) <= SIGMAS * std / math.sqrt(n)
    # kurtosis 1.8, so the sample std errs by std * sqrt(0.8 / 4n)
    assert abs(values.std() - std) <= SIGMAS * std * math.sqrt(0.2 / n)


def assert_normal(values, std):
    n = values.size
    assert abs(values.mean()) <= SIGMAS * std / math.sqrt(n)
    assert abs(values.std() - std) <= SIGMAS * std / math.sqrt(2 * n)
    within = (np.abs(values) < std).mean()
    assert abs(within - 0.6827) <= SIGMAS * math.sqrt(0.6827 * 0.3173 / n)


def qkv_rows(m, layer=0):
    """W_q, W_k, W_v of a timm ViT layer, each heads x d x D, read off the fused weight by row numbers."""
    attn = m.blocks[layer].attn
    weight = f64(attn.qkv.weight)
    query, key, value = weight.reshape(3, attn.num_heads, -1, weight.shape[1])
    return query, key, value


def loop_targets(rows, columns, offsets):
    """H by explicit loops over tokens (2404.01139: no wrap, no padding, rows outside are zero)."""
    h = np.zeros((len(offsets), rows * columns, rows * columns))
    for head, (m, n) in enumerate(offsets):
        for r in range(rows):
            for c in range(columns):
                if 0 <= r + m < rows and 0 <= c + n < columns:
                    h[head, r * columns + c, (r + m) * columns + (c + n)] = 1.0
    return h
