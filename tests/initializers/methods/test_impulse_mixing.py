"""Impulses between patches: what a whole block does to one patch, and shapes by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import applied, refused, state
from timm.layers import GluMlp
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
from torch.nn import functional as F


def mixer(rows=5, columns=4, width=48, token_ratio=0.5, **more):
    torch.manual_seed(0)
    ratio = {"mlp_ratio": (token_ratio, 2.0)} | more
    return MlpMixer(
        num_classes=3, img_size=(4 * rows, 4 * columns), patch_size=4, num_blocks=2, embed_dim=width, **ratio
    )


def resmlp(rows=5, columns=4):
    return mixer(rows, columns, mlp_ratio=2.0, block_layer=ResBlock, norm_layer=Affine)


def started(model, seed=3, **params):
    before = state(model)
    applied(model, "impulse_mixing", seed, **params)
    return before


def shifted(picture, down, right):
    """What a picture's places see so far down and to the right, nothing beyond the edge."""
    rows, columns = picture.shape
    padded = np.zeros((rows + 8, columns + 8))
    padded[4 : 4 + rows, 4 : 4 + columns] = picture
    return padded[4 + down : 4 + down + rows, 4 + right : 4 + right + columns]


def test_a_resmlp_looks_at_one_neighbour_a_layer():
    size = 5
    model = resmlp(7, 5)
    before = started(model, kernel_size=size)
    picture = np.random.default_rng(0).normal(size=(7, 5))
    seen = set()
    for i, block in enumerate(model.blocks):
        weight = block.linear_tokens.weight.detach()
        norm = before[f"blocks.{i}.linear_tokens.weight"].norm()
        assert weight.norm() == pytest.approx(float(norm), rel=1e-5)
        out = F.linear(torch.tensor(picture).float().flatten(), weight).view(7, 5) / weight.max()
        reach = range(-(size // 2), size // 2 + 1)
        fits = [(y, x) for y in reach for x in reach if np.allclose(out, shifted(picture, y, x), atol=1e-5)]
        assert len(fits) == 1
        seen |= set(fits)
        assert torch.equal(block.linear_tokens.bias, before[f"blocks.{i}.linear_tokens.bias"])
    assert len(seen) == 2, "each layer has an offset of its own, at this seed"


@pytest.mark.parametrize(("width", "hidden"), [(48, 24), (80, 40), (1, 1)])
def test_every_feature_of_a_mixer_reads_one_patch_next_to_the_one_that_it_writes_to(width, hidden):
    rows, columns = 5, 4
    model = mixer(rows, columns, width, hidden / width)
    before = started(model)
    offsets = []
    for i, block in enumerate(model.blocks):
        first, second = block.mlp_tokens.fc1, block.mlp_tokens.fc2
        for name, linear in (("fc1", first), ("fc2", second)):
            was = before[f"blocks.{i}.mlp_tokens.{name}.weight"].norm()
            assert float(linear.weight.detach().norm()) in (pytest.approx(float(was), rel=1e-5), 0)
            assert torch.equal(linear.bias, before[f"blocks.{i}.mlp_tokens.{name}.bias"])
        for t in range(hidden):
            (written,) = second.weight[:, t].nonzero().flatten().tolist()
            assert written == t * rows * columns // hidden
            read = first.weight[t].nonzero().flatten().tolist()
            assert len(read) <= 1, "none where the offset leads off the grid"
            for patch in read:
                y, x = patch // columns - written // columns, patch % columns - written % columns
                assert max(abs(y), abs(x)) <= 1
                offsets.append((y, x))
    if hidden >= 24:
        assert len(set(offsets)) == 9, "all of the neighbourhood"


@pytest.mark.parametrize(
    ("build", "params", "why"),
    [
        (lambda: mixer(2, 6), {"kernel_size": 5}, "reaches beyond a grid of 2 x 6 patches; at most 3"),
        (mixer, {"kernel_size": 4}, "must be odd"),
        (lambda: mixer(mlp_layer=GluMlp, mlp_ratio=(1.0, 2.0)), {}, "not what it is in an MLP-Mixer or a ResMLP"),
        (lambda: torch.nn.Linear(3, 3), {}, "Linear has none; choose an MLP-Mixer or a ResMLP"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_changes(build, params, why):
    refused(build(), why, "impulse_mixing", base="kaiming_uniform", **params)
