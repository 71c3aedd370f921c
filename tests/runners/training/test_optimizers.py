"""Optimisers and schedules by name: the training loop against one written with timm by hand; every learning rate."""

import math

import pytest
import timm.optim
import torch
from timm.scheduler import CosineLRScheduler
from torch import nn

from tests.runners.training.test_train import split
from vitinit.benchmark.grids.grid import resolve_model, resolve_recipe
from vitinit.benchmark.image_files.arrays import Data
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.optimizers import registry as optimizers
from vitinit.initializers import registry
from vitinit.initializers.apply import initialize_run
from vitinit.initializers.streams import stream
from vitinit.runners.loaders.base import ResidentLoader
from vitinit.runners.training.train import Training, train

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
OURS = {"adamw": torch.optim.AdamW, "asgd": torch.optim.ASGD}
MODEL = ViT(image_size=8, patch_size=2, width=16, depth=1, heads=2, position="learned", pool="token")
GATED = resolve_model({"preset": "convit_micro", "image_size": 8, "patch_size": 2, "width": 16})


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """A class, as by a file in the folder of optimisers."""
    monkeypatch.setitem(optimizers.REGISTRY.known, "asgd", torch.optim.ASGD)


def model(spec=MODEL):
    built = build_model(spec, 2)
    initialize_run(built, registry.build("kaiming_uniform", {}), None, lambda name: stream(0, name))
    return built


def recipe(optimizer, **fields):
    settings = {"epochs": 3, "batch_size": 8, "lr": 3e-3, "weight_decay": 0.1, "warmup_epochs": 1, "hflip": 0.0}
    return resolve_recipe({"name": "small", **settings, "optimizer": optimizer, **fields})


@pytest.mark.parametrize("spec", [MODEL, GATED], ids=["vit", "convit"])
@pytest.mark.parametrize("optimizer", ["adamw", {"name": "sgd", "momentum": 0.8, "nesterov": False}, "lion", "asgd"])
def test_losses_are_those_of_a_loop_by_hand(optimizer, spec):
    """Decay groups, optimiser, schedule and loss by timm and torch alone, on the same batches."""
    adamw = {"betas": (0.8, 0.95), "eps": 1e-4} if optimizer == "adamw" else {}
    settings = recipe(optimizer, label_smoothing=0.1, clip_grad=1.0, schedule_per="epoch", **adamw)
    images = split(24, 0)
    data = Data(images, images, ("a", "b"), (0.5,) * 3, (0.25,) * 3, "", 8)
    loader = ResidentLoader(data, settings, 0, CPU)
    training = Training(model(spec), settings, loader.steps, CPU)
    train(training, loader)

    by_hand = model(spec).train()
    named = dict(optimizer) if isinstance(optimizer, dict) else {"name": optimizer}
    if str(optimizer) in OURS:
        groups = timm.optim.param_groups_weight_decay(by_hand, 0.1, True, {"pos_embed", "cls_token"})
        made = OURS[optimizer](groups, lr=3e-3, **adamw)
    else:
        made = timm.optim.create_optimizer_v2(by_hand, named.pop("name"), lr=3e-3, weight_decay=0.1, **named)
    schedule = CosineLRScheduler(
        made, t_initial=3, warmup_t=1, lr_min=settings.min_lr, warmup_lr_init=settings.warmup_lr
    )
    expected = []
    for epoch in range(3):
        schedule.step(epoch)
        losses = []
        for images, labels in loader.train(epoch):
            made.zero_grad()
            loss = nn.functional.cross_entropy(by_hand(images), labels, label_smoothing=0.1)
            loss.backward()
            nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
            made.step()
            losses.append(loss.item())
        expected.append(sum(losses) / len(losses))
    assert [row.train_loss for row in training.history] == pytest.approx(expected, abs=1e-6)
    assert max(expected) - min(expected) > 1e-3, "it learns"


def test_norms_biases_and_positions_do_not_decay_and_muon_leaves_them_to_adamw():
    built = model()
    names = {parameter: name for name, parameter in built.named_parameters()}
    made = Training(built, recipe("muon"), 3, CPU).optimizer
    for group in made.param_groups:
        for parameter in group["params"]:
            name = names.pop(parameter)
            special = name in ("pos_embed", "cls_token")
            assert (group["weight_decay"] == 0) == (special or parameter.ndim < 2), name
            assert group.get("use_fallback", False) == special, name
    assert not names, "each parameter is in one group"


# --- schedules ---


EPOCHS, WARMUP, STEPS, LR, MIN, FIRST = 10, 2, 7, 0.01, 0.001, 1e-4
FORMULAS = [
    ("cosine", lambda share: MIN + (LR - MIN) * (1 + math.cos(math.pi * share)) / 2),
    ("constant", lambda share: LR),
    ("linear", lambda share: LR + (MIN - LR) * share),
    ("polynomial", lambda share: MIN + (LR - MIN) * (1 - share) ** 2),
    ({"name": "polynomial", "power": 0.5}, lambda share: MIN + (LR - MIN) * math.sqrt(1 - share)),
    ({"name": "step", "every": 3, "factor": 0.5}, lambda share: LR * 0.5 ** math.floor(share * EPOCHS / 3 + 1e-9)),
    ("wsd", lambda share: MIN + (LR - MIN) * (1 - math.sqrt(max(0, (share - 0.8) / 0.2)))),
    (
        {"name": "wsd", "cooldown": 0.3, "shape": "cosine"},
        lambda share: MIN + (LR - MIN) * (1 + math.cos(math.pi * max(0, (share - 0.7) / 0.3))) / 2,
    ),
]


@pytest.mark.parametrize("per", ["step", "epoch"])
@pytest.mark.parametrize(("schedule", "after_warmup"), FORMULAS, ids=lambda each: "" if callable(each) else str(each))
def test_every_learning_rate_is_that_of_the_formula(schedule, after_warmup, per):
    settings = {"epochs": EPOCHS, "batch_size": 8, "lr": LR, "min_lr": MIN, "warmup_epochs": WARMUP}
    settings |= {"name": "small", "warmup_lr": FIRST, "schedule": schedule, "schedule_per": per}
    training = Training(nn.Linear(2, 2), resolve_recipe(settings), STEPS, torch.device("cpu"))
    for epoch in range(EPOCHS):
        training.scheduler.step(epoch)
        for step in range(STEPS):
            training.scheduler.step_update(epoch * STEPS + step)
            epochs = epoch + step / STEPS if per == "step" else epoch
            share = epochs / EPOCHS
            expected = FIRST + (LR - FIRST) * epochs / WARMUP if epochs < WARMUP else after_warmup(share)
            for group in training.optimizer.param_groups:
                assert group["lr"] == pytest.approx(expected, rel=1e-9), (epoch, step)
