"""The training loop, by hand and by formulas; interruptions; evaluating less often; masks."""

import hashlib
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score
from torch import nn

from vitinit.benchmark.grids.grid import resolve_model
from vitinit.benchmark.image_files.arrays import IGNORED, Data, Split
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.spec import Recipe
from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.streams import stream
from vitinit.runners.loaders.base import ResidentLoader
from vitinit.runners.training.train import Diverged, Training, evaluate, fingerprint, train, training_loss, update

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
MODEL = ViT(image_size=8, patch_size=2, width=16, depth=2, heads=2)
MIXER = resolve_model({"preset": "convmixer_micro", "image_size": 8, "patch_size": 2, "width": 16, "depth": 2})


def split(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (n,), generator=generator)
    images = torch.randint(0, 192, (n, 3, 8, 8), generator=generator) + 64 * labels[:, None, None, None]
    return Split(images.to(torch.uint8), labels)


@pytest.fixture
def data():
    return Data(split(50, 0), split(703, 1), ("dark", "light"), (0.5,) * 3, (0.25,) * 3, "", 8)


def recipe(**fields):
    return Recipe(
        **{"name": "test", "epochs": 3, "batch_size": 8, "lr": 1e-3, "hflip": 0.5, "crop_padding": 1, **fields}
    )


def initialised(seed=0, method=None, model=MODEL):
    built = build_model(model, 2)
    chosen = registry.build(method, {}) if method else None
    initialize_run(built, registry.build("kaiming_uniform", {}), chosen, lambda name: stream(seed, name))
    return built


def run(data, settings, **kwargs):
    loader = ResidentLoader(data, settings, 0, CPU)
    training = Training(initialised(**kwargs), settings, loader.steps, CPU)
    train(training, loader)
    return training


def test_evaluation_counts_every_test_image_once(data):
    model = initialised()
    loader = ResidentLoader(data, recipe(), 0, CPU)
    metrics = evaluate(model, loader)[0]
    loss, top1 = metrics["loss"], metrics["top1"]
    with torch.inference_mode():
        logits = torch.stack([model(image[None])[0] for image in loader.normalise(data.held_out.images)]).double()
    expected = -logits.log_softmax(-1)[torch.arange(703), data.held_out.labels].mean()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    right = (logits.argmax(-1) == data.held_out.labels).double()
    assert top1 == pytest.approx(100 * right.mean().item())
    light = right[data.held_out.labels == 1].mean().item()
    assert metrics["class_accuracy_1"] == pytest.approx(100 * light), "after the last epoch also what is measured then"


def test_a_loss_that_is_no_number_is_an_error(data):
    with pytest.raises(Diverged, match="epoch 1"):
        run(data, recipe(lr=1e20, eps=1e-30))
    settings = recipe(ema=0.9)
    loader = ResidentLoader(data, settings, 0, CPU)
    training = Training(initialised(), settings, loader.steps, CPU)
    with pytest.raises(Diverged, match="epoch 1: averaged weights loss nan"):
        train(training, loader, between_steps=lambda: training.ema.module.head.bias.data.fill_(math.nan))


@pytest.mark.parametrize("method", ["conv_filters", None])
def test_frozen_filters_stay_and_all_else_is_trained(data, method):
    """Weight decay and all; where nothing is frozen, the filters are trained too."""
    before = initialised(method=method, model=MIXER).state_dict()
    trained = run(data, recipe(epochs=1, weight_decay=0.5), method=method, model=MIXER).model.state_dict()
    same = {name for name, value in trained.items() if torch.equal(value, before[name])}
    spatial = {f"blocks.{block}.0.fn.0.{part}" for block in (0, 1) for part in ("weight", "bias")}
    assert same == (spatial if method else set())


def test_gradients_are_clipped_at_the_size_that_they_have_without_the_scale_of_fp16(data):
    """A step of plain SGD is as long as its rate times the bound."""
    plain = {"name": "sgd", "params": {"momentum": 0.0, "nesterov": False}}
    settings = recipe(precision="fp16", clip_grad=0.01, optimizer=plain, weight_decay=0.0, lr=1.0)
    model, loader = initialised(), ResidentLoader(data, settings, 0, CPU)
    before = [value.detach().clone() for value in model.parameters()]
    training, resumed = Training(model, settings, 6, CPU), Training(initialised(), settings, 6, CPU)
    update(training, model.train(), next(loader.train(0)), 0)
    moved = [(value.detach() - old).norm() for value, old in zip(model.parameters(), before, strict=True)]
    assert float(torch.stack(moved).norm()) == pytest.approx(0.01, rel=1e-3)
    training.scaler.update(2.0**9)
    resumed.load_state_dict(training.state_dict())
    assert resumed.scaler.get_scale() == 2.0**9


def test_the_average_is_that_of_the_weights_after_each_step_and_has_a_score_of_its_own(data):
    settings = recipe(ema=0.7, epochs=2)
    loader = ResidentLoader(data, settings, 0, CPU)
    training, expected = Training(initialised(), settings, loader.steps, CPU), {}

    def after_a_step():
        if training.step and training.total_steps > seen[0]:
            seen[0] = training.total_steps
            for name, value in training.model.state_dict().items():
                expected[name] = 0.7 * expected[name] + 0.3 * value.double() if name in expected else value.double()

    seen = [0]
    train(training, loader, between_steps=after_a_step)
    for name, value in training.ema.module.state_dict().items():
        torch.testing.assert_close(value.double(), expected[name], rtol=0, atol=1e-6)
    scores = evaluate(training.ema.module, loader)[0]
    assert (training.history[-1].ema_loss, training.history[-1].ema_score) == (scores["loss"], scores["top1"])
    assert scores["loss"] != training.history[-1].test_loss
    plain = run(data, recipe(epochs=2)).history
    assert [row.test_loss for row in plain] == [row.test_loss for row in training.history]
    assert "ema_loss" not in plain[0].model_dump()


def test_a_fingerprint_is_the_hash_of_names_types_shapes_and_bytes():
    model = nn.BatchNorm1d(3)
    whole = hashlib.sha256()
    for name, value in model.state_dict().items():
        whole.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode() + value.numpy().tobytes())
    assert fingerprint(model) == whole.hexdigest()


# --- masks: what moves pixels moves them ---


CLASSES, SIDE = ("none", "light", "dark", "never"), 8


def masks_of(count, seed):
    """The level of a pixel tells its class; some pixels are not counted."""
    random = np.random.RandomState(seed)
    levels = random.randint(3, 250, (count, 3, SIDE, SIDE)).astype(np.uint8)
    masks = (levels[:, 0] > 80).astype(np.uint8) + (levels[:, 0] > 160)
    masks[random.rand(*masks.shape) < 0.1] = IGNORED
    return Split(torch.from_numpy(levels), torch.from_numpy(masks))


def test_flips_and_crops_move_masks_with_their_images():
    """The mask can be read off every image: it is still the right one when both have been moved."""
    levels = masks_of(40, 0).images
    clean, moved = Split(levels, (levels[:, 0] > 80).byte() + (levels[:, 0] > 160).byte()), 0
    settings = Recipe(name="test", epochs=2, batch_size=8, lr=1e-2, hflip=0.5, crop_padding=2)
    loader = ResidentLoader(Data(clean, clean, CLASSES, (0.0,) * 3, (1 / 255,) * 3, "", SIDE), settings, 0, CPU)
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
    masks = masks_of(6, 2).labels
    log_p, classes = logits_BSSK.log_softmax(-1)[masks != IGNORED], masks[masks != IGNORED].long()
    for smoothing in (0.0, 0.1):
        expected = -((1 - smoothing) * log_p[torch.arange(len(classes)), classes] + smoothing * log_p.mean(1)).sum()
        whole = training_loss(logits_BSSK, masks, smoothing)
        assert float(whole) == pytest.approx(float(expected) / masks.numel())
        parts = [training_loss(logits_BSSK[share], masks[share], smoothing) for share in (slice(0, 2), slice(2, 6))]
        assert float(2 / 6 * parts[0] + 4 / 6 * parts[1]) == pytest.approx(float(whole))


def test_scores_are_those_of_all_pixels_that_count():
    logits_BSSK, masks = (
        torch.randn(15, SIDE, SIDE, 4, generator=torch.Generator().manual_seed(1)),
        masks_of(15, 1).labels,
    )
    logits_BSSK[..., 3] = -10  # neither there nor predicted: it has no share in the mean
    batches = [(logits_BSSK[batch], masks[batch]) for batch in (slice(0, 5), slice(5, 15))]
    loader = SimpleNamespace(device=CPU, recipe=recipe(), classes=4, dense=True, held_out=lambda: iter(batches))
    counted, (scored, correct) = masks != IGNORED, evaluate(nn.Identity(), loader)
    truth, logits = masks[counted].long(), logits_BSSK[counted]
    miou = 100 * jaccard_score(truth, logits.argmax(-1), labels=[0, 1, 2], average="macro")
    assert scored == pytest.approx({"loss": float(nn.functional.cross_entropy(logits, truth)), "miou": miou})
    assert correct is None
