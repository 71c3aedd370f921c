"""One small run of this machine and this code, and its record with changes."""

from __future__ import annotations

import json

import torch

from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, Recipe, RunSpec

NOW = "2026-01-01T00:00:00+00:00"
THREAD = 1
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def spec(**changes) -> RunSpec:
    values = {
        "dataset": DatasetSpec(name="digits", train_size=100),
        "model": ViT(image_size=8, patch_size=2, width=48, depth=1, heads=4),
        "base": InitializerSpec(name="kaiming_uniform"),
        "recipe": Recipe(name="small", epochs=2, batch_size=32, lr=1e-3, clip_grad=1.0),
        "seed": 0,
    }
    return RunSpec(**{**values, **changes})


def altered(record: RunRecord, **changes) -> RunRecord:
    """Another record of the same study, as if it had been read from a file."""
    content = {**json.loads(record.model_dump_json()), **changes}
    if "spec" in changes:
        content["run_id"] = RunSpec.model_validate(changes["spec"]).run_id
    return RunRecord.model_validate_json(json.dumps(content))
