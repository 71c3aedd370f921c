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
import torch
from vitinit.plugins import Metric, Seen, Tracker


def size(seen: Seen):
    return next(seen.model.parameters()).norm()[None]


class Wrong(Metric):
    name = "wrong"
    label = "Wrong (%)"

    def sums(self, logits_NK, labels_N):
        return torch.stack([(logits_NK.argmax(1) != labels_N).sum(), torch.tensor(len(labels_N))]).double()

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


def test_a_grid_and_a_run_take_them_from_files(vitinit, tmp_path, monkeypatch):
    for registry in (metrics.REGISTRY, probes.REGISTRY):
        monkeypatch.setattr(registry, "known", registry.by_name())
    files = {"black.py": AUGMENTATION, "still.py": OPTIMIZER, "mine.py": MEASURES, "own.yaml": GRID}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    own = "--track mine.py:Lines --probe mine.py:size --metric mine.py:Wrong --metric mine.py:Margin"
    command = "run own.yaml --executor inline --device cpu --results"
    code, printed, _ = vitinit(command, "out", own)
    assert code == 0, printed
    (path,) = (file for file in (tmp_path / "out/own").glob("*.json"))
    record = json.loads(path.read_text())
    before, after = record["probes"]
    assert before["more"] == after["more"]
    assert len(before["more"]["size"]) == 1
    assert (tmp_path / "applied").exists()
    last = record["history"][-1]
    assert last["metrics"]["top1_margin"] == 120
    assert last["metrics"]["wrong"] == 100 - last["val_top1" if "val_top1" in last else "test_top1"]
    assert (tmp_path / "out/own/tracking/lines/lines.txt").read_text() == "1\ndone\n"
    code, printed, _ = vitinit("tables --study own --results out --metric mine.py:Wrong")
    assert code == 0, printed
    assert f"{last['metrics']['wrong']:.1f}" in printed
    monkeypatch.setattr(metrics.REGISTRY.known["top1_margin"], "percent", True)
    code, printed, _ = vitinit(command, "other", own)
    assert code == 1
    assert "failed, VitinitError: metric 'top1_margin' gave {'top1_margin': 120.0}: in percent, or it" in printed
