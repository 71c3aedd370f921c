"""Schedules by name: every value of the learning rate against the formula; branches of a stable phase; resuming."""

import math

import pytest
import torch
from torch import nn

from vitinit.benchmark.grids.grid import resolve_recipe
from vitinit.runners.training.train import Training

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
