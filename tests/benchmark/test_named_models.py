"""Models by name: timm's and anybody's, checked and counted by building them, each its own run."""

import sys
from pathlib import Path

import pytest
import torch

from tests.operations import operations
from vitinit.benchmark.grids.parts import resolve_model
from vitinit.benchmark.models.build import build_model, parameter_count
from vitinit.benchmark.models.named import NamedModel
from vitinit.benchmark.spec import model_spec
from vitinit.initializers.registry import build
from vitinit.initializers.streams import stream

SMALL = {"timm": "vit_tiny_patch16_224", "img_size": 16, "patch_size": 4, "embed_dim": 48, "depth": 2, "num_heads": 3}
MODEL = """
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self, num_classes: int, img_size: int, width: int = 8, rates: list[float] = [0.1]) -> None:
        super().__init__()
        self.rate = torch.linspace(0, rates[0], 3)[1].item()  # reads a value, which meta tensors do not have
        self.body = nn.Linear(3 * img_size**2, width)
        self.own_scale = nn.Parameter(torch.rand(width))
        self.head = nn.Linear(width, num_classes)

    def forward(self, images):
        return self.head(self.body(images.flatten(1)) * self.own_scale)


def two_outputs(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16**2, 7))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "somebodys.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    yield "somebodys"
    sys.modules.pop("somebodys", None)


def named(fields: dict) -> NamedModel:
    model = resolve_model(fields)
    assert isinstance(model, NamedModel)
    return model


def test_what_is_counted_is_what_a_preset_of_the_same_fields_has():
    model = named(SMALL)
    fields = {"arch": "vit", "image_size": 16, "patch_size": 4, "width": 48, "depth": 2, "heads": 3}
    ours = model_spec({**fields, "position": "learned", "pool": "token"})
    assert operations(model) == operations(ours)
    assert parameter_count(build_model(model, 10)) == parameter_count(build_model(ours, 10))
    assert (model.batch_norm, named({"timm": "resnet18", "img_size": 32}).batch_norm) == (False, True)
    assert model_spec(model.model_dump(mode="json")) == model


def test_an_image_size_that_is_not_given_is_timms():
    assert named({"timm": "vit_tiny_patch16_384"}).image_size == 384


def test_a_class_of_a_package_is_built_with_the_classes_and_the_image_size(package):
    model = named({"python": f"{package}:Small", "image_size": 16, "args": {"width": 4}})
    built = build_model(model, 7)
    assert built(torch.zeros(2, 3, 16, 16)).shape == (2, 7)
    assert operations(model) == 2 * (3 * 16**2 * 4 + 4 * 10)
    assert parameter_count(built) == (3 * 16**2 + 1) * 4 + 4 + 5 * 7


def test_a_base_leaves_what_no_rule_covers_as_it_was_built(package):
    model = named({"python": f"{package}:Small", "image_size": 16})
    base = build("kaiming_uniform", {}, "base")
    first, again, other = (build_model(model, 7, seed=seed) for seed in (0, 0, 1))
    drawn = first.own_scale.clone()
    assert torch.equal(again.own_scale, drawn)
    assert not torch.equal(other.own_scale, drawn)
    body = first.body.weight.clone()
    base.apply(first, stream(0, "init/base"), lambda done, total: None)
    assert torch.equal(first.own_scale, drawn)
    assert not torch.equal(first.body.weight, body)
