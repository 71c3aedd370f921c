"""Augmentation in batches against timm's own, fed with the same draws, bit for bit; crops and flips."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from timm.data import auto_augment
from timm.data.mixup import FastCollateMixup
from timm.data.random_erasing import RandomErasing
from timm.loss import SoftTargetCrossEntropy
from torch.nn import functional as F

from tests.benchmark.test_augmentations import changed, made, one_by_one
from tests.miniature import pieces
from tests.runners import small_run
from vitinit.benchmark.augmentations.operations import image_operations
from vitinit.benchmark.augmentations.rand_augment import RandAugment
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.initializers.streams import derive, stream
from vitinit.runners.augmentation.mixing import erase, mix
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


@pytest.mark.parametrize("device", small_run.DEVICES)
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


@pytest.mark.parametrize(("device", "threads"), [*((device, 1) for device in small_run.DEVICES), ("cpu", 3)])
def test_a_loader_shows_what_timm_makes_of_a_batch_wherever_it_begins(photographs, device, threads, one_thread):
    split = Split(photographs[:144].contiguous(), torch.arange(144) % 5)
    data = Data(split, split, tuple("abcde"), MEAN, (0.25,) * 3, "", 32)
    torch.set_num_threads(threads)
    settings = recipe(rand_augment=PAPERS, crop_padding=2, hflip=0.5)
    loader = make_loader(data, settings, 3, torch.device(device))
    shown = list(loader.train(1, first_step=1))
    order = torch.randperm(144, generator=stream(3, "order", 1))
    assert torch.get_num_threads() == threads
    assert len(shown) == 2
    for step, (images, labels) in enumerate(shown, 1):
        numbers = order[48 * step : 48 * (step + 1)]
        moved = loader.crop_and_flip(data.train.images[numbers].to(device), 1, step).cpu()
        expected = by_timm(PAPERS, moved, derive(3, "randaugment", 1, step))
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, data.std))
        assert torch.equal(labels.cpu(), data.train.labels[numbers])
        torch.testing.assert_close(images.cpu(), (expected.float() / 255 - mean) / std, rtol=0, atol=1e-6)


# --- mixup, cutmix, erasing ---


CLASSES = 5


@pytest.fixture
def images():
    return torch.randint(0, 256, (64, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (1.0, 0.8)])
def test_mixing_is_timms_bit_for_bit_chunk_by_chunk(images, mixup, cutmix):
    labels = torch.randint(CLASSES, (64,), generator=torch.Generator().manual_seed(1))
    settings = small_run.recipe(mixup=mixup, cutmix=cutmix, mix_images=4)
    timms = FastCollateMixup(mixup, cutmix, mode="batch", label_smoothing=0.1, num_classes=CLASSES)
    cut = set()
    for epoch in range(3):
        mixed, targets = mix(images, labels, settings, CLASSES, 3, epoch, first=24)
        for number, start in enumerate(range(0, 64, 4)):
            part = slice(start, start + 4)
            np.random.seed(derive(3, "mix", epoch, 6 + number) % 2**32)  # timm draws from the global generator
            expected, shares = timms(list(zip(images[part], labels[part].tolist(), strict=True)))
            assert torch.equal(mixed[part], expected)
            logits = torch.randn(4, CLASSES)
            ours = F.cross_entropy(logits, targets[part], label_smoothing=0.1)
            assert ours.item() == pytest.approx(SoftTargetCrossEntropy()(logits, shares).item(), rel=1e-5)
            either = (mixed[part] == images[part]) | (mixed[part] == images[part].flip(0))
            cut.add(either.all().item())
    assert cut == {kind for kind, alpha in ((False, mixup), (True, cutmix)) if alpha}


def test_erasing_is_timms_bit_for_bit(images):
    normalised = (images.float() / 255 - 0.5) / 0.25
    settings = small_run.recipe(random_erasing=0.5, batch_size=64)

    def erased(settings, step=2, part=slice(None)):
        return erase(normalised[part].clone(), settings, 3, 1, step, part)

    ours = erased(settings)
    random.seed(derive(3, "erase", 1, 2))
    torch.manual_seed(derive(3, "erase noise", 1, 2))
    assert torch.equal(ours, RandomErasing(0.5, mode="pixel", device="cpu")(normalised.clone()))
    changed = (ours != normalised).flatten(1).any(1).float().mean().item()
    assert abs(changed - 0.5) < 4 * (0.25 / 64) ** 0.5
    for part in (slice(0, 20), slice(20, 64)):
        assert torch.equal(erased(settings, part=part), ours[part])
    assert not torch.equal(erased(settings, step=3), ours)
