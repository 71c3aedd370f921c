"""`vitinit check`: models by name, file and package, images of a folder, exit codes, errors of one line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FILE = """
import torch
from torch import nn
from timm.models.vision_transformer import VisionTransformer

SMALL = dict(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=4, num_classes=2)

def make_model():
    return VisionTransformer(**SMALL)

def ill():
    model = make_model()
    nn.init.normal_(model.head.weight, std=5.0)
    return model

def nothing():
    return 3

def broken():
    raise ValueError("no such width")

class Bright(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([-10.0, 10.0]))

    def forward(self, images):
        return images.mean((1, 2, 3))[:, None] * self.scale

model = make_model()
"""


@pytest.fixture
def check(vitinit, monkeypatch, tmp_path):
    """Run `vitinit check` in tmp_path, which holds FILE; return exit code, page and error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("mine.py").write_text(FILE)
    return lambda *arguments: vitinit("check", *arguments)


@pytest.mark.parametrize("name", ["mine.py:make_model", "mine:make_model", "mine.py:model"])
def test_a_sound_model_of_ones_own(check, name):
    code, page, err = check(name)
    assert (code, err) == (0, "")
    assert "VisionTransformer: sound" in page.splitlines()[0]
    assert "random images of 32 x 32" in page


def test_warnings_are_exit_code_1(check):
    code, page, _ = check("mine.py:ill")
    assert code == 1
    assert "loss-above-chance" in page.splitlines()[0]
    assert "usually helps" in page


def test_images_of_a_folder(check):
    """Two classes, at the size of the model; they are normalised, so nothing is said of them."""
    drawn = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (Path("images") / label).mkdir(parents=True)
        for number in range(12):
            pixels = drawn.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("images") / label / f"{number}.png")
    code, page, err = check("mine.py:make_model", "--data", "folder:images")
    assert (code, err) == (0, ""), page
    assert "16 images of 3 x 32 x 32" in page
    code, page, _ = check("mine.py:make_model", "--data", "folder:images", "--classes", "7")
    assert code == 1
    assert "2 logits, and there are 7 classes" in " ".join(page.split())


def test_labels_are_those_of_the_images(check):
    """Dark ones and bright ones, by a model that tells them apart."""
    for label, level in (("dark", 20), ("light", 230)):
        (Path("images") / label).mkdir(parents=True)
        for number in range(20):
            Image.new("RGB", (8, 8), (level, level, level)).save(Path("images") / label / f"{number}.png")
    _, page, err = check("mine.py:Bright", "--data", "folder:images", "--image-size", "8")
    assert (err, "loss-above-chance" in page) == ("", False), page


def test_a_model_of_timm_gets_the_classes(check):
    code, page, err = check("timm:test_vit", "--classes", "3")
    assert err == ""
    assert "ln 3 = 1.099" in page
    assert code == (0 if "sound" in page.splitlines()[0] else 1)
