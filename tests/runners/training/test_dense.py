"""Training on masks: what moves pixels moves masks, what is minimised and measured."""

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score
from torch.nn import functional as F

from vitinit.benchmark.image_files.arrays import IGNORED, Data, Split
from vitinit.benchmark.spec import Recipe
from vitinit.runners.loaders.base import ResidentLoader
from vitinit.runners.training.distributed import ALONE
from vitinit.runners.training.train import Scores, training_loss

pytestmark = pytest.mark.usefixtures("one_thread")

CPU, CLASSES, SIDE = torch.device("cpu"), ("none", "light", "dark", "never"), 8


def split(count, seed):
    """The level of a pixel tells its class; some pixels are not counted."""
    random = np.random.RandomState(seed)
    levels = random.randint(3, 250, (count, 3, SIDE, SIDE)).astype(np.uint8)
    masks = (levels[:, 0] > 80).astype(np.uint8) + (levels[:, 0] > 160)
    masks[random.rand(*masks.shape) < 0.1] = IGNORED
    return Split(torch.from_numpy(levels), torch.from_numpy(masks))


def test_flips_and_crops_move_masks_with_their_images():
    """The mask can be read off every image: it is still the right one when both have been moved."""
    levels = split(40, 0).images
    clean, moved = Split(levels, (levels[:, 0] > 80).byte() + (levels[:, 0] > 160).byte()), 0
    recipe = Recipe(name="test", epochs=2, batch_size=8, lr=1e-2, hflip=0.5, crop_padding=2)
    loader = ResidentLoader(Data(clean, clean, CLASSES, (0.0,) * 3, (1 / 255,) * 3, "", SIDE), recipe, 0, CPU)
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
    log_p, classes = logits_BSSK.log_softmax(-1)[masks != IGNORED], masks[masks != IGNORED].long()
    for smoothing in (0.0, 0.1):
        expected = -((1 - smoothing) * log_p[torch.arange(len(classes)), classes] + smoothing * log_p.mean(1)).sum()
        whole = training_loss(logits_BSSK, masks, smoothing)
        assert float(whole) == pytest.approx(float(expected) / masks.numel())
        parts = [training_loss(logits_BSSK[part], masks[part], smoothing) for part in (slice(0, 2), slice(2, 6))]
        assert float(2 / 6 * parts[0] + 4 / 6 * parts[1]) == pytest.approx(float(whole))


def test_scores_are_those_of_all_pixels_that_count():
    logits_BSSK, masks = torch.randn(15, SIDE, SIDE, 4, generator=torch.Generator().manual_seed(1)), split(15, 1).labels
    logits_BSSK[..., 3] = -10  # neither there nor predicted: it has no share in the mean
    found = Scores(CPU, 4, dense=True)
    for part in (slice(0, 5), slice(5, 15)):
        found.add(logits_BSSK[part], masks[part])
    counted, scored = masks != IGNORED, found.over(ALONE)
    truth, logits = masks[counted].long(), logits_BSSK[counted]
    miou = 100 * jaccard_score(truth, logits.argmax(-1), labels=[0, 1, 2], average="macro")
    assert scored.metrics == pytest.approx({"loss": float(F.cross_entropy(logits, truth)), "miou": miou})
    assert scored.correct is None
