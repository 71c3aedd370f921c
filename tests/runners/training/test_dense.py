"""Training on masks: what moves pixels moves masks, what is minimised and measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score
from torch.nn import functional as F

from tests.runners.training.test_distributed import Precise
from tests.runners.worlds import together
from vitinit.benchmark.image_files.arrays import IGNORED, Data, Split
from vitinit.benchmark.metrics.mean_iou import MeanIoU
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.spec import Recipe
from vitinit.initializers import registry
from vitinit.initializers.errors import VitinitError
from vitinit.initializers.initialize import initialize
from vitinit.initializers.streams import stream
from vitinit.runners.basics.stop import Stop
from vitinit.runners.loaders.resident import ResidentLoader
from vitinit.runners.one_run.resume import share_state
from vitinit.runners.training.distributed import ALONE, World, joined
from vitinit.runners.training.scoring import Scores, training_loss
from vitinit.runners.training.train import Training, evaluate, train

pytestmark = pytest.mark.usefixtures("one_thread")

CPU, CLASSES, SIDE = torch.device("cpu"), ("none", "light", "dark", "never"), 8
MODEL = ViT(image_size=SIDE, patch_size=2, width=16, depth=2, heads=2)


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


def training_of(what: Recipe, world: World = ALONE, seed: int = 0, exact: bool = False):
    loader = (Precise if exact else ResidentLoader)(data(), what, 0, CPU, world.shard)
    model = build_model(MODEL, len(CLASSES), dense=True)
    initialize(model, registry.build("kaiming_uniform", {}), None, lambda name: stream(seed + world.rank, name))
    training = Training(model.double() if exact else model, what, loader.steps, CPU)
    training.loss_sum = training.loss_sum.double() if exact else training.loss_sum
    return training, loader


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


def test_masks_change_neither_the_images_nor_their_order():
    whole, what = data(), recipe()
    labelled = Data(*(Split(each.images, torch.arange(len(each.images)) % 4) for each in (whole.train, whole.held_out)),
                    CLASSES, whole.mean, whole.std, "")  # fmt: skip
    batches = [list(ResidentLoader(each, what, 3, CPU).train(1)) for each in (whole, labelled)]
    for (ours, _), (theirs, _) in zip(*batches, strict=True):
        assert torch.equal(ours, theirs)


def test_what_masks_do_not_follow_is_refused_in_one_line():
    for fields in (
        {"rand_augment": "rand-m9"},
        {"mixup": 0.8},
        {"cutmix": 1.0},
        {"random_erasing": 0.5},
        {"crop_scale": (0.5, 1.0), "crop_padding": 0},
        {"crop_pct": 0.9, "crop_padding": 0},
    ):
        with pytest.raises(VitinitError, match=f"recipe 'test': {next(iter(fields))} would change images") as caught:
            ResidentLoader(data(), recipe(**fields), 0, CPU)
        assert "\n" not in str(caught.value)


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
    two = MeanIoU().values(torch.tensor([3.0, 1.0, 2.0, 4.0]))
    assert two == {"miou": pytest.approx(100 * (3 / 6 + 4 / 7) / 2)}


@pytest.mark.long
def test_it_learns_and_is_measured_on_all_images_whatever_the_parts():
    what = recipe(epochs=60, hflip=0.0, crop_padding=0, evaluate_every=60)
    training, loader = training_of(what)
    before = evaluate(training.model, loader, what).metrics
    train(training, loader, 0)
    (last,) = [row for row in training.history if row.score is not None]
    assert last.test_top1 is None
    assert last.test_miou == evaluate(training.model, loader, what).metrics["miou"]
    assert last.score > before["miou"] + 10
    in_parts = evaluate(training.model, loader, what, micro_batch=7).metrics
    assert in_parts == pytest.approx({"loss": last.test_loss, "miou": last.test_miou, **last.metrics})


def shared(world: World = ALONE):
    training, loader = training_of(recipe(batch_size=9), world, exact=True)
    share_state(training, world)
    train(training, loader, 0, between_steps=lambda: world.agreed(Stop()), world=world, micro_batch=2)
    return [(row.train_loss, row.test_loss, row.test_miou) for row in training.history]


def member():
    with joined("cpu") as world:
        return shared(world)


@pytest.mark.long
def test_two_processes_come_to_the_numbers_of_one():
    one, (first, second) = shared(), together(2, member)
    assert first == second
    for ours, theirs in zip(one, first, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)
