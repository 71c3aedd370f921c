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


@pytest.mark.skipif(
    DEVICE.type == "cpu" and shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU"
)
def test_compiled_training_gives_the_same_numbers_but_for_rounding_dropout_included(tmp_path):
    set_flags(Execution(device=DEVICE.type, threads=2, executor="inline", compiled=True))
    data = load(DatasetSpec(name="digits"), 8, tmp_path)
    histories = []
    for compiled in (False, True):
        model = build_model(MODEL, 10)
        initialize(model, registry.build("kaiming_uniform", {}), None, lambda name: stream(0, name))
        model = model.to(DEVICE)
        loader = make_loader(data, RECIPE, 0, DEVICE)
        training = Training(model, RECIPE, loader.steps, DEVICE)
        train(training, loader, 0, compiled=compiled)
        histories.append(training.history)
    for eager, fused in zip(*histories, strict=True):
        assert fused.train_loss == pytest.approx(eager.train_loss, rel=1e-4)
        assert fused.test_loss == pytest.approx(eager.test_loss, rel=1e-4)
        assert fused.train_loss != pytest.approx(loss_without_dropout(data), rel=1e-3)


def loss_without_dropout(data) -> float:
    """The training loss of the first epoch without dropout: what a wrong stream would not be told from is far off."""
    spec = MODEL.model_copy(update={"drop_rate": 0.0, "drop_path_rate": 0.0})
    model = build_model(spec, 10)
    initialize(model, registry.build("kaiming_uniform", {}), None, lambda name: stream(0, name))
    loader = make_loader(data, RECIPE, 0, DEVICE)
    training = Training(model.to(DEVICE), RECIPE, loader.steps, DEVICE)
    train(training, loader, 0)
    return training.history[0].train_loss
