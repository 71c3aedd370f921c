"""Training through torch.compile, against training without."""

from __future__ import annotations

import shutil

import pytest
import torch

from vitinit.benchmark.datasets.load import load
from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.spec import DatasetSpec, Recipe
from vitinit.initializers import registry
from vitinit.initializers.initialize import initialize
from vitinit.initializers.streams import stream
from vitinit.runners.basics.environment import set_flags
from vitinit.runners.basics.setting import Execution
from vitinit.runners.loaders import make_loader
from vitinit.runners.training.train import Training, train

pytestmark = pytest.mark.slow


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MODEL = ViT(image_size=8, patch_size=2, width=16, depth=2, heads=2, drop_rate=0.2, drop_path_rate=0.2)
RECIPE = Recipe(name="test", epochs=2, batch_size=64, lr=1e-3, hflip=0.5)


def losses(spec: ViT, data, compiled: bool = False) -> list[tuple[float, float]]:
    """Of training and test, by epoch."""
    model = build_model(spec, 10)
    initialize(model, registry.build("kaiming_uniform", {}), None, lambda name: stream(0, name))
    loader = make_loader(data, RECIPE, 0, DEVICE)
    training = Training(model.to(DEVICE), RECIPE, loader.steps, DEVICE)
    train(training, loader, 0, compiled=compiled)
    return [(row.train_loss, row.test_loss) for row in training.history]


@pytest.mark.skipif(
    DEVICE.type == "cpu" and shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU"
)
def test_compiled_training_gives_the_same_numbers_but_for_rounding_dropout_included(tmp_path):
    set_flags(Execution(device=DEVICE.type, threads=2, executor="inline", compiled=True))
    data = load(DatasetSpec(name="digits"), 8, tmp_path)
    eager, fused = (losses(MODEL, data, compiled) for compiled in (False, True))
    for epoch in (0, 1):
        assert fused[epoch] == pytest.approx(eager[epoch], rel=1e-4)
    # what a wrong stream of dropout would not be told from is far off
    without = losses(MODEL.model_copy(update={"drop_rate": 0.0, "drop_path_rate": 0.0}), data)
    assert fused[0][0] != pytest.approx(without[0][0], rel=1e-3)
