import random

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.auto_augment import rand_augment_transform

from benchmark.spec import Recipe
from runners.augment import augment, posterize, random_crop
from runners.streams import derive, stream

MEAN = (0.5, 0.25, 0.125)


def recipe(**fields):
    return Recipe(name="test", epochs=1, batch_size=4, lr=1e-3, **fields)


@pytest.fixture
def images():
    return torch.randint(0, 256, (64, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def test_nothing_asked_nothing_changed(images):
    assert torch.equal(augment(images, recipe(), MEAN, 0, 0, 0), images)


def test_crop_is_a_window_of_the_zero_padded_image_and_every_offset_occurs(images):
    padding = 2
    cropped = random_crop(images.repeat(8, 1, 1, 1), padding, stream(0, "augment"))
    seen = set()
    for image, crop in zip(images.repeat(8, 1, 1, 1), cropped, strict=True):
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


def test_flip_mirrors_columns_at_its_rate(images):
    many = images.repeat(32, 1, 1, 1)
    flipped = augment(many, recipe(hflip=0.3), MEAN, 0, 0, 0)
    mirrored = (flipped == many.flip(-1)).all(dim=(1, 2, 3))
    assert (mirrored | (flipped == many).all(dim=(1, 2, 3))).all()
    assert abs(mirrored.float().mean().item() - 0.3) < 4 * (0.3 * 0.7 / len(many)) ** 0.5


def test_rand_augment_is_timms_own_pixel_for_pixel(images):
    config = "rand-m5-mstd0.5-inc1"  # at magnitude 5 posterize never reaches 0 bits, where timm raises
    ours = augment(images, recipe(rand_augment=config), MEAN, seed=3, epoch=1, step=2)
    timms = rand_augment_transform(config, {"translate_const": int(16 * 0.45), "img_mean": (128, 64, 32)})
    seed = derive(3, "randaugment", 1, 2)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    for image, result in zip(images, ours, strict=True):
        expected = np.asarray(timms(Image.fromarray(image.permute(1, 2, 0).numpy())))
        assert np.array_equal(result.permute(1, 2, 0).numpy(), expected)
    assert not torch.equal(ours, images)


def test_rand_augment_survives_magnitude_noise_at_the_papers_setting(images):
    for step in range(20):
        result = augment(images, recipe(rand_augment="rand-m9-mstd0.5-inc1"), MEAN, 0, 0, step)
        assert result.shape == images.shape
        assert result.dtype == torch.uint8


def test_posterize_keeps_the_highest_bits_and_zero_bits_are_black():
    image = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, 2))
    for bits in range(9):
        expected = np.asarray(image) & (0xFF << (8 - bits) & 0xFF)
        assert np.array_equal(np.asarray(posterize(image, bits)), expected)


def test_augmentation_depends_on_seed_epoch_and_step_and_on_no_global_state(images):
    setting = recipe(hflip=0.5, crop_padding=2, rand_augment="rand-m9-mstd0.5-inc1")
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    first = augment(images, setting, MEAN, 1, 2, 3)
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])
    random.seed(99)
    np.random.seed(99)
    torch.manual_seed(99)
    assert torch.equal(augment(images, setting, MEAN, 1, 2, 3), first)
    for other in ((0, 2, 3), (1, 0, 3), (1, 2, 0)):
        assert not torch.equal(augment(images, setting, MEAN, *other), first)
