"""Augmentations by name: a contract for every registered one, pixels of torchvision, timm and Pillow, and recipes."""

import random

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps
from timm.data import auto_augment
from torchvision import transforms

from tests.miniature import pieces
from tests.runners.small_run import DEVICES
from vitinit.benchmark.augmentations import registry
from vitinit.benchmark.augmentations.operations.image_operations import fill_color
from vitinit.benchmark.spec import AugmentationSpec
from vitinit.initializers.errors import VitinitError

FILL = fill_color((0.5, 0.25, 0.125))


@pytest.fixture(scope="module")
def photographs():
    return pieces(200)


def made(name, **params):
    return registry.make(AugmentationSpec(name=name, params=params))


def changed(augmentation, images, seed, device="cpu"):
    drawn = augmentation.draw(len(images), images.shape[-1], seed)
    return augmentation.apply(images.to(device), drawn, FILL.to(device)).cpu()


def one_by_one(transform, images):
    return torch.from_numpy(
        np.stack([transform(Image.fromarray(image)) for image in images.permute(0, 2, 3, 1).numpy()])
    ).permute(0, 3, 1, 2)


@pytest.mark.parametrize("name", registry.REGISTRY.by_name())
def test_contract(photographs, name):
    """Draws depend on the seed alone; each new image depends on its own pixels and numbers alone."""
    augmentation, images = made(name), photographs[:64].clone()
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    drawn = augmentation.draw(64, 32, 3)
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])
    random.seed(99), np.random.seed(99), torch.manual_seed(99)
    assert len(drawn) == 64
    assert np.array_equal(augmentation.draw(64, 32, 3), drawn)
    assert not np.array_equal(augmentation.draw(64, 32, 4), drawn)
    for device in DEVICES:
        result = augmentation.apply(images.to(device), drawn, FILL.to(device))
        assert (result.shape, result.dtype, result.device.type) == (images.shape, torch.uint8, device)
        assert not torch.equal(result.cpu(), images)
        assert torch.equal(images, photographs[:64])
        for part in (slice(5, 6), slice(17, 40)):
            alone = augmentation.apply(images[part].to(device), drawn[part], FILL.to(device))
            assert torch.equal(alone, result[part])
    spec = registry.resolve(AugmentationSpec(name=name))
    assert registry.resolve(spec) == spec
    with pytest.raises(VitinitError, match=f"augmentation '{name}'.*nonsense"):
        made(name, nonsense=1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [32, 31, 2])
@pytest.mark.parametrize(
    ("name", "params", "transform"),
    [
        ("trivial_augment", {}, transforms.TrivialAugmentWide()),
        ("trivial_augment", {"bins": 7}, transforms.TrivialAugmentWide(7)),
        ("color_jitter", {}, transforms.ColorJitter(0.3, 0.3, 0.3)),
        ("color_jitter", {"brightness": 1.5, "contrast": 0.0}, transforms.ColorJitter(1.5, 0, 0.3)),
    ],
)
def test_draws_and_pixels_are_torchvisions_bit_for_bit(photographs, name, params, transform, size, device):
    images = photographs[:, :, :size, :size]
    torch.manual_seed(5)
    assert torch.equal(changed(made(name, **params), images, 5, device), one_by_one(transform, images))


@pytest.mark.parametrize("device", DEVICES)
def test_augmix_is_timms_bit_for_bit(photographs, device):
    for seed, (params, config) in enumerate([({}, "augmix-m3-w3"), ({"magnitude": 9, "width": 2}, "augmix-m9-w2")]):
        random.seed(seed), np.random.seed(seed)
        timms = auto_augment.augment_and_mix_transform(config, {"img_mean": tuple(FILL.flatten().tolist())})
        assert torch.equal(changed(made("augmix", **params), photographs, seed, device), one_by_one(timms, photographs))


@pytest.mark.parametrize("device", DEVICES)
def test_three_augment_is_one_of_pillows_three(photographs, device):
    draws = random.Random(5)

    def transform(image):
        kind, sigma = draws.choice("gsb"), draws.uniform(0.1, 2.0)
        if kind == "g":
            return image.convert("L").convert("RGB")
        return ImageOps.solarize(image) if kind == "s" else image.filter(ImageFilter.GaussianBlur(sigma))

    assert torch.equal(changed(made("three_augment"), photographs, 5, device), one_by_one(transform, photographs))
