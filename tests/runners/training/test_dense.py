"""Training on masks: what moves pixels moves masks, what is minimised and measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score
from torch.nn import functional as F

from vitinit.benchmark.image_files.arrays import IGNORED, Data, Split
from vitinit.benchmark.spec import Recipe
from vitinit.runners.loaders.resident import ResidentLoader
from vitinit.runners.training.distributed import ALONE
from vitinit.runners.training.scoring import Scores, training_loss

pytestmark = pytest.mark.usefixtures("one_thread")

CPU, CLASSES, SIDE = torch.device("cpu"), ("none", "light", "dark", "never"), 8


def recipe(**fields) -> Recipe:
    settings = {"name": "test", "epochs": 2, "batch_size": 8, "lr": 1e-2, "hflip": 0.5, "crop_padding": 2, "eps": 1e-4}
    return Recipe(**{**settings, **fields})


def split(count: int, seed: int) -> Split:
    """The level of a pixel tells its class; some pixels are not counted."""
    random = np.random.RandomState(seed)
    levels = random.randint(3, 250, (count, 3, SIDE, SIDE)).astype(np.uint8)
    masks = (levels[:, 0] > 80).astype(np.uint8) + (levels[:, 0] > 160)
    masks[random.rand(*masks.shape) < 0.1] = IGNORED
    return Split(torch.from_numpy(levels), torch.from_numpy(masks))


def data() -> Data:
    return Data(split(40, 0), split(703, 1), CLASSES, (0.5,) * 3, (0.25,) * 3, "")


def test_flips_and_crops_move_masks_with_their_images():
    """The mask can be read off every image: it is still the right one when both have been moved."""
    whole = data()
    clean = Split(whole.train.images, (whole.train.images[:, 0] > 80).byte() + (whole.train.images[:, 0] > 160).byte())
    moved = 0
    what = recipe(hflip=0.5, crop_padding=2)
    loader = ResidentLoader(Data(clean, clean, CLASSES, (0.0,) * 3, (1 / 255,) * 3, ""), what, 0, CPU)
    for step, (images, masks) in enumerate(loader.train(0)):
        levels = images.round()  # normalised with mean 0 and std 1/255: the levels themselves
        padding = (levels == 0).all(1)  # no pixel of an image is black
        expected = (levels[:, 0] > 80).byte() + (levels[:, 0] > 160).byte()
        assert torch.equal(masks[padding], torch.full_like(masks[padding], IGNORED))
        assert torch.equal(masks[~padding], expected[~padding])
        numbers = loader.order(0)[8 * step : 8 * step + 8]
        moved += int((masks != clean.labels[numbers]).flatten(1).any(1).sum())
        assert padding.any()
    assert moved > 20


def test_the_loss_is_the_mean_over_pixels_and_that_of_parts_adds_up():
    generator = torch.Generator().manual_seed(0)
    logits_BSSK = torch.randn(6, SIDE, SIDE, 4, generator=generator, dtype=torch.float64)
    masks = split(6, 2).labels
    log_p = logits_BSSK.log_softmax(-1)
    for smoothing in (0.0, 0.1):
        expected = 0.0
        for image, row, column in np.ndindex(*masks.shape):
            kind = int(masks[image, row, column])
            if kind != IGNORED:
                p = log_p[image, row, column]
                expected -= float((1 - smoothing) * p[kind] + smoothing * p.mean())
        whole = training_loss(logits_BSSK, masks, smoothing)
        assert float(whole) == pytest.approx(expected / masks.numel())
        parts = [training_loss(logits_BSSK[part], masks[part], smoothing) for part in (slice(0, 2), slice(2, 6))]
        assert float(2 / 6 * parts[0] + 4 / 6 * parts[1]) == pytest.approx(float(whole))


def test_mean_iou_is_that_of_scikit_learn():
    generator = torch.Generator().manual_seed(1)
    found, truths, guesses, loss = Scores(CPU, 4, dense=True), [], [], 0.0
    for number in (0, 1, 2):
        masks = split(5, number).labels
        logits = torch.randn(5, SIDE, SIDE, 4, generator=generator)
        logits[..., 3] = -10  # neither there nor predicted: it has no share in the mean
        found.add(logits, masks)
        counted = masks != IGNORED
        truths.append(masks[counted])
        guesses.append(logits.argmax(-1)[counted])
        loss += float(F.cross_entropy(logits[counted], masks[counted].long(), reduction="sum"))
    truth, guess = torch.cat(truths).numpy(), torch.cat(guesses).numpy()
    scored = found.over(ALONE)
    mean_loss, score = scored.metrics["loss"], scored.metrics["miou"]
    assert scored.correct is None
    assert score == pytest.approx(100 * jaccard_score(truth, guess, labels=[0, 1, 2], average="macro"), abs=1e-9)
    assert mean_loss == pytest.approx(loss / len(truth))
