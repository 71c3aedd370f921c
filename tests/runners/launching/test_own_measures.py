"""Augmentation, optimiser, tracker, probe and metric of a user's files."""

import json

from vitinit.benchmark.metrics import registry as metrics
from vitinit.runners.probes import quantities as probes

AUGMENTATION = """
import numpy as np
from vitinit.plugins import Augmentation


class Black(Augmentation):
    def draw(self, images, size, seed):
        return np.zeros(images)

    def apply(self, images_BCHW, drawn, fill_C11):
        open("applied", "a").close()
        return images_BCHW * 0
"""
OPTIMIZER = """
import torch


class Still(torch.optim.SGD):
    def step(self, closure=None):
        return None
"""
MEASURES = """
import random

import torch
from vitinit.plugins import Metric, Seen, Tracker


def size(seen: Seen):
    tensors = [*seen.model.requires_grad_(False).parameters(), seen.images_BCHW, *seen.attention.maps]
    sums = [float(values.abs().sum()) for values in tensors]
    for values in tensors:
        values.zero_()
    return [*sums, float(torch.rand(1)), random.random()]


def size_again(seen):
    return size(seen)


def seconds(seen):
    return [1.0]


def words(seen):
    return "none"


class Wrong(Metric):
    name = "wrong"
    label = "Wrong (%)"

    def sums(self, logits_NK, labels_N):
        wrong = (logits_NK.argmax(1) != labels_N).sum()
        logits_NK.zero_(), labels_N.zero_()
        return torch.stack([wrong, torch.tensor(len(labels_N))]).double()

    def values(self, sums):
        return {"wrong": 100 * float(sums[0] / sums[1])}


class Margin(Wrong):
    name = "top1_margin"
    percent = False

    def values(self, sums):
        return {"top1_margin": 120.0}


class Lines(Tracker):
    name = "lines"

    def __init__(self, run):
        self.file = run.folder / "lines.txt"
        run.folder.mkdir(parents=True, exist_ok=True)

    def log(self, epoch, values):
        self.file.open("a").write(f"{epoch}\\n")

    def close(self, status):
        self.file.open("a").write(f"{status}\\n")
"""
GRID = """
title: own
rows: {Base: {base: trunc_normal}}
blocks:
- datasets: [{name: digits, train_size: 64}]
  model: {preset: vit_micro, image_size: 8, patch_size: 4, depth: 1}
  recipe: {name: small, epochs: 1, batch_size: 16,
    augment: ['black.py:Black'], optimizer: {name: 'still.py:Still', momentum: 0.5}}
  seeds: [0]
"""


def test_a_grid_and_a_run_take_them_from_files_and_they_change_no_number(vitinit, tmp_path, monkeypatch):
    for registry in (metrics.REGISTRY, probes.REGISTRY):
        monkeypatch.setattr(registry, "known", registry.by_name())
    files = {"black.py": AUGMENTATION, "still.py": OPTIMIZER, "mine.py": MEASURES, "own.yaml": GRID}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    own = "--track mine.py:Lines --metric mine.py:Wrong --metric mine.py:Margin --probe mine.py:size "
    own += "--probe mine.py:size_again --probe mine.py:seconds --probe mine.py:words"
    command, numbers = "run own.yaml --executor inline --device cpu --results", []
    for folder, given in (("plain", ""), ("out", own)):
        code, printed, _ = vitinit(command, folder, given)
        assert code == 0, printed
        (path,) = (tmp_path / folder / "own").glob("*.json")
        record = json.loads(path.read_text())
        last, (before, after) = record["history"][-1], record["probes"]
        numbers.append((record["weights"], record["correct"], last["test_loss"], after["nonlocality"]))
    assert numbers[0] == numbers[1]
    assert "not measured: words: " in printed
    assert before["more"] == after["more"]
    assert before["more"]["size"] == before["more"]["size_again"]
    assert before["more"]["seconds"] == [1.0]
    assert (tmp_path / "applied").exists()
    assert last["metrics"]["top1_margin"] == 120
    assert last["metrics"]["wrong"] == 100 - last["test_top1"]
    assert (tmp_path / "out/own/tracking/lines/lines.txt").read_text() == "1\ndone\n"
    code, printed, _ = vitinit("tables --study own --results out --metric mine.py:Wrong")
    assert code == 0, printed
    assert f"{last['metrics']['wrong']:.1f}" in printed
    for name, value, says in (
        ("percent", True, "metric 'top1_margin' gave {'top1_margin': 120.0}: in percent, or it"),
        ("values", lambda *_: {"top1_margin": float("nan")}, "epoch 1: metrics.top1_margin: Input should be a fi"),
        ("name", "margin", "metric 'margin' gave {'top1_margin': 120.0}: a name is its own"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(metrics.REGISTRY.known["top1_margin"], name, value)
            code, printed, _ = vitinit(command, name, own)
        assert code == 1
        assert f"failed, VitinitError: {says}" in printed
