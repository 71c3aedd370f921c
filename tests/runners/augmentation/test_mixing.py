"""Mixup, cutmix and erasing against timm's own, fed with the same draws, bit for bit; crops and flips."""

import random

import numpy as np
import pytest
import torch
from timm.data.mixup import FastCollateMixup
from timm.data.random_erasing import RandomErasing
from timm.loss import SoftTargetCrossEntropy
from torch.nn import functional as F

from tests.runners.small_run import recipe
from vitinit.initializers.streams import derive
from vitinit.runners.augmentation.mixing import erase, mix

CLASSES = 5


@pytest.fixture
def images():
    return torch.randint(0, 256, (64, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (1.0, 0.8)])
def test_mixing_is_timms_bit_for_bit_chunk_by_chunk(images, mixup, cutmix):
    labels = torch.randint(CLASSES, (64,), generator=torch.Generator().manual_seed(1))
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
