"""Crop and flip: what comes out is what goes in, moved; the draws are those that recorded runs were trained with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmark.spec import Recipe
from runners.augmentation.crop_and_flip import crop_and_flip
from runners.basics.streams import stream
from tests.runners.small_run import DEVICES


def recipe(**fields) -> Recipe:
    return Recipe(**{"name": "test", "epochs": 1, "batch_size": 512, "lr": 1e-3, **fields})


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(0, 256, (512, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize("device", DEVICES)
def test_crop_is_a_window_of_the_zero_padded_image_and_every_offset_occurs(images, device):
    padding = 2
    cropped = crop_and_flip(images.to(device), recipe(crop_padding=padding), stream(0, "augment")).cpu()
    seen = set()
    for image, crop in zip(images, cropped, strict=True):
        padded = np.pad(image.numpy(), ((0, 0), (padding,) * 2, (padding,) * 2))
        offsets = [
            (top, left)
            for top in range(2 * padding + 1)
            for left in range(2 * padding + 1)
            if np.array_equal(padded[:, top : top + 16, left : left + 16], crop.numpy())
        ]
        assert len(offsets) == 1
        seen.add(offsets[0])
    assert len(seen) == (2 * padding + 1) ** 2


@pytest.mark.parametrize("device", DEVICES)
def test_flip_mirrors_columns_at_its_rate(images, device):
    images = images[..., :15, :15].contiguous()
    flipped = crop_and_flip(images.to(device), recipe(hflip=0.3), stream(0, "augment")).cpu()
    mirrored = (flipped == images.flip(-1)).all(dim=(1, 2, 3))
    assert (mirrored | (flipped == images).all(dim=(1, 2, 3))).all()
    assert abs(mirrored.float().mean().item() - 0.3) < 4 * (0.3 * 0.7 / len(images)) ** 0.5


def test_the_draws_are_those_of_recorded_runs(images):
    """Offsets of all images, then their flips, from one generator: other draws would be other runs."""
    generator = stream(3, "augment", 1, 2)
    tops, lefts = torch.randint(5, (2, 512), generator=generator).tolist()
    flips = (torch.rand(512, generator=generator) < 0.5).tolist()
    result = crop_and_flip(images, recipe(crop_padding=2, hflip=0.5), stream(3, "augment", 1, 2))
    for image, top, left, flip, shown in zip(images.numpy(), tops, lefts, flips, result.numpy(), strict=True):
        crop = np.pad(image, ((0, 0), (2, 2), (2, 2)))[:, top : top + 16, left : left + 16]
        assert np.array_equal(crop[..., ::-1] if flip else crop, shown)


def test_a_part_of_the_batch_is_augmented_as_in_the_whole(images):
    settings = recipe(crop_padding=2, hflip=0.5)
    whole = crop_and_flip(images, settings, stream(0, "augment"))
    assert torch.equal(crop_and_flip(images, recipe(), stream(0, "augment")), images), "nothing asked"
    part = slice(100, 237)
    assert torch.equal(crop_and_flip(images[part], settings, stream(0, "augment"), part), whole[part])
