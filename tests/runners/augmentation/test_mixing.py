"""Mixup, cutmix and erasing against timm's own, fed with the same draws, bit for bit; crops and flips."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from timm.data.mixup import FastCollateMixup
from timm.data.random_erasing import RandomErasing
from timm.loss import SoftTargetCrossEntropy
from torch.nn import functional as F

from tests.runners.small_run import DEVICES
from vitinit.benchmark.image_files.arrays import Data, Split
from vitinit.benchmark.spec import Recipe
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.streams import derive, stream
from vitinit.runners.augmentation.crop_and_flip import crop_and_flip
from vitinit.runners.augmentation.mixing import draw_erasing, erase, mix
from vitinit.runners.loaders import make_loader
from vitinit.runners.loaders.base import Shard

CLASSES = 5
CPU = torch.device("cpu")


def recipe(**fields) -> Recipe:
    return Recipe(**{"name": "test", "epochs": 1, "batch_size": 8, "lr": 1e-3, **fields})


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(0, 256, (64, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.randint(CLASSES, (64,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (1.0, 0.8)])
def test_mixing_is_timms_bit_for_bit_chunk_by_chunk(images, labels, mixup, cutmix):
    settings = recipe(mixup=mixup, cutmix=cutmix, mix_images=4)
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
    settings = recipe(random_erasing=0.5, batch_size=64)

    def erased(settings: Recipe, step: int = 2, part: slice = slice(None)) -> torch.Tensor:
        return erase(normalised[part].clone(), draw_erasing(settings, normalised.shape[1:], 3, 1, step, part))

    ours = erased(settings)
    random.seed(derive(3, "erase", 1, 2))
    torch.manual_seed(derive(3, "erase noise", 1, 2))
    assert torch.equal(ours, RandomErasing(0.5, mode="pixel", device="cpu")(normalised.clone()))
    changed = (ours != normalised).flatten(1).any(1).float().mean().item()
    assert abs(changed - 0.5) < 4 * (0.25 / 64) ** 0.5
    for part in (slice(0, 20), slice(20, 64)):
        assert torch.equal(erased(settings, part=part), ours[part])
    assert not torch.equal(erased(settings, step=3), ours)


def test_nothing_reads_or_changes_the_global_generators(images, labels):
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    mix(images, labels, recipe(mixup=1.0, cutmix=1.0), CLASSES, 0, 0, 0)
    settings = recipe(random_erasing=1.0, batch_size=len(images))
    erase(images.float(), draw_erasing(settings, images.shape[1:], 0, 0, 0))
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])
    assert torch.equal(torch.get_rng_state(), states[2])


@pytest.fixture
def data(images, labels) -> Data:
    split = Split(images, labels)
    return Data(split, split, tuple("abcde"), (0.5,) * 3, (0.25,) * 3, "")


MIXING = {"mixup": 1.0, "cutmix": 0.8, "mix_images": 4, "batch_size": 16, "random_erasing": 0.5}


def test_processes_together_see_what_one_alone_sees(data):
    settings = recipe(**MIXING, hflip=0.5, crop_padding=2, rand_augment="rand-m9-mstd0.5-inc1")
    alone = list(make_loader(data, settings, 7, CPU).train(1, 1))
    assert len(alone) == 3
    assert not torch.equal(*(targets.max(1).values for _, targets in alone[:2])), "each step is mixed anew"
    for size in (1, 2, 3, 4):
        parts = [list(make_loader(data, settings, 7, CPU, Shard(rank, size)).train(1, 1)) for rank in range(size)]
        for step, (images, targets) in enumerate(alone):
            assert torch.equal(images, torch.cat([part[step][0] for part in parts]))
            assert torch.equal(targets, torch.cat([part[step][1] for part in parts]))
            assert targets.shape == (16, CLASSES)
            assert torch.allclose(targets.sum(1), torch.ones(16))
        held_out = [make_loader(data, settings, 7, CPU, Shard(rank, size)).held_out() for rank in range(size)]
        labels = torch.cat([labels for batches in held_out for _, labels in batches])
        assert torch.equal(labels, data.held_out.labels)


def test_the_test_split_is_neither_mixed_nor_erased(data):
    ((images, labels),) = make_loader(data, recipe(**MIXING), 7, CPU).held_out()
    torch.testing.assert_close(images, (data.held_out.images.float() / 255 - 0.5) / 0.25, rtol=0, atol=1e-6)
    assert torch.equal(labels, data.held_out.labels)


def test_a_process_without_a_whole_chunk_is_refused_with_the_numbers_that_can_be(data):
    says = "5 processes cannot share batches of 16 images, of which 4 are mixed with one another: 1 to 4 can"
    with pytest.raises(VitinitError, match=says):
        make_loader(data, recipe(**MIXING), 7, CPU, Shard(0, 5))
    with pytest.raises(VitinitError, match="17 processes cannot share batches of 16 images: 1 to 16 can"):
        make_loader(data, recipe(batch_size=16), 7, CPU, Shard(0, 17))


# Crop and flip: what comes out is what goes in, moved; the draws are those that recorded runs were trained with.


@pytest.fixture
def many() -> torch.Tensor:
    return torch.randint(0, 256, (512, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("padding", "hflip"), [(2, 0.3), (2, 0.0), (0, 0.3), (0, 0.0)])
def test_crops_and_flips_are_those_that_were_drawn_for_recorded_runs(many, padding, hflip, device):
    """Offsets of all images, then their flips, from one generator; also for a part of a batch."""
    generator, settings = stream(3, "augment", 1, 2), recipe(batch_size=512, crop_padding=padding, hflip=hflip)
    tops, lefts = (
        torch.randint(2 * padding + 1, (2, 512), generator=generator) if padding else torch.zeros(2, 512).int()
    )
    flips = (torch.rand(512, generator=generator) < hflip).tolist() if hflip else [False] * 512
    result = crop_and_flip(many.to(device), settings, stream(3, "augment", 1, 2)).cpu()
    for image, top, left, flip, shown in zip(many.numpy(), tops, lefts, flips, result.numpy(), strict=True):
        crop = np.pad(image, ((0, 0), (padding,) * 2, (padding,) * 2))[:, top : top + 16, left : left + 16]
        assert np.array_equal(crop[..., ::-1] if flip else crop, shown)
    part = slice(100, 237)
    assert torch.equal(crop_and_flip(many[part], settings, stream(3, "augment", 1, 2), part), result[part])
