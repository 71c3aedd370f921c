"""RandAugment in batches against timm's own, image by image with PIL: the same draws and the same pixels, bit for bit.

The mean absolute difference to timm's PIL version is 0 for every operation, on photographs, at every magnitude, for
both signs and both interpolations.
"""

import random
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from timm.data import auto_augment

from tests.benchmark.test_augmentations import changed, made, one_by_one
from tests.miniature import pieces
from tests.runners import small_run
from tests.runners.small_run import DEVICES
from vitinit.benchmark.augmentations.operations import image_operations
from vitinit.benchmark.augmentations.rand_augment import RandAugment
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.initializers.streams import derive, stream
from vitinit.runners.augmentation.mixing import crop_and_flip
from vitinit.runners.loaders.base import make_loader

CPU = torch.device("cpu")
MEAN = (0.5, 0.25, 0.125)
FILL = (128, 64, 32)
PAPERS = "rand-m9-mstd0.5-inc1"
EACH_ALONE = [
    f"rand-{magnitude}-n1-p1{increasing}"
    for magnitude in ("m0", "m4", "m9-mstd0.5", "m10-mstd101", "m14-mmax20")
    for increasing in ("", "-inc1")
]
"""Every operation on its own; magnitude 10 with mstd101 is anything from 0 to 10."""


@pytest.fixture(scope="module")
def photographs():
    return pieces(256)


def posterize(image, bits, **_):
    """timm's, but also at 0 bits, which Pillow refuses since 13."""
    kept = np.asarray(image) & (0xFF << max(0, 8 - bits) & 0xFF)
    return Image.fromarray(kept.astype(np.uint8)) if bits < 8 else image


def timms(config):
    transform = auto_augment.rand_augment_transform(config, {"img_mean": FILL})
    for op in transform.ops:
        if op.aug_fn is auto_augment.posterize:
            op.aug_fn = posterize
    return transform


def by_timm(config, images, seed):
    """Image by image, drawn from the global generators."""
    transform = timms(config)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    return one_by_one(transform, images)


@pytest.mark.parametrize("device", DEVICES)
def test_every_operation_is_timms_on_photographs_bit_for_bit(photographs, device):
    differences = {kind: [] for kind in image_operations.KINDS}
    for seed, config in enumerate(EACH_ALONE):
        images = photographs.roll(seed, 0)[:96]
        kinds = RandAugment(config=config).draw(len(images), 32, seed)[:, 0, 0].astype(int)
        difference = (
            changed(made("rand_augment", config=config), images, seed, device).int()
            - by_timm(config, images, seed).int()
        ).abs()
        for kind, of_image in zip(kinds, difference.float().mean((1, 2, 3)).tolist(), strict=True):
            differences[image_operations.KINDS[kind]].append(of_image)
    assert differences.pop("nothing") == []
    for kind, of_images in differences.items():
        assert len(of_images) > 20, kind
        assert max(of_images) == 0, kind


@pytest.mark.parametrize("bits", range(-1, 10))
def test_any_number_of_bits_is_kept_as_pillow_does(photographs, bits):
    """Magnitudes with noise leave the range that it takes."""
    image = photographs[0].permute(1, 2, 0).numpy()
    expected = ImageOps.posterize(Image.fromarray(image), min(bits, 8)) if bits > 0 else 0 * image
    kept = image_operations.posterize(photographs[:1], torch.tensor([[bits]]), torch.zeros(3, 1, 1))
    assert np.array_equal(kept[0].permute(1, 2, 0), expected)


recipe = partial(small_run.recipe, batch_size=48)


@pytest.mark.parametrize(("device", "threads"), [*((device, 1) for device in DEVICES), ("cpu", 3)])
def test_a_loader_shows_what_timm_makes_of_a_batch_wherever_it_begins(photographs, device, threads, one_thread):
    split = Split(photographs[:144].contiguous(), torch.arange(144) % 5)
    data = Data(split, split, tuple("abcde"), MEAN, (0.25,) * 3, "", 32)
    torch.set_num_threads(threads)
    settings = recipe(rand_augment=PAPERS, crop_padding=2, hflip=0.5)
    shown = list(make_loader(data, settings, 3, torch.device(device)).train(1, first_step=1))
    order = torch.randperm(144, generator=stream(3, "order", 1))
    assert torch.get_num_threads() == threads
    assert len(shown) == 2
    for step, (images, labels) in enumerate(shown, 1):
        numbers = order[48 * step : 48 * (step + 1)]
        moved = crop_and_flip(data.train.images[numbers], settings, stream(3, "augment", 1, step))
        expected = by_timm(PAPERS, moved, derive(3, "randaugment", 1, step))
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, data.std))
        assert torch.equal(labels.cpu(), data.train.labels[numbers])
        torch.testing.assert_close(images.cpu(), (expected.float() / 255 - mean) / std, rtol=0, atol=1e-6)
