"""One small run of this machine and this code, its record with changes, and a tier of such runs."""

import json
from pathlib import Path

import torch
import yaml

from tests.processes import ROOT
from vitinit.benchmark.models.vit import ViT
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.spec import DatasetSpec, InitializerSpec, Recipe, RunSpec

NOW = "2026-01-01T00:00:00+00:00"
THREAD = 1
EVERYTHING = yaml.safe_load(Path(__file__).with_name("everything.yaml").read_bytes())
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def spec(**changes):
    values = {
        "dataset": DatasetSpec(name="digits", train_size=100),
        "model": ViT(image_size=8, patch_size=2, width=48, depth=1, heads=4),
        "base": InitializerSpec(name="kaiming_uniform"),
        "recipe": Recipe(name="small", epochs=2, batch_size=32, lr=1e-3, clip_grad=1.0),
        "seed": 0,
    }
    return RunSpec(**{**values, **changes})


def recipe(**fields):
    return Recipe(**{"name": "test", "epochs": 1, "batch_size": 8, "lr": 1e-3, **fields})


def altered(record, **changes):
    """Another record of the same study, as if it had been read from a file."""
    content = {**json.loads(record.model_dump_json()), **changes}
    if "spec" in changes:
        content["run_id"] = RunSpec.model_validate(changes["spec"]).run_id
    return RunRecord.model_validate_json(json.dumps(content))


def tiny_tier(folder):
    """Write a tier of `vitinit rank` of one epoch on 100 digits; return what `rank.TIERS` calls it."""
    tier = yaml.safe_load((ROOT / "benchmark/grids/smoke.yaml").read_bytes())
    tier["blocks"][0] |= yaml.safe_load("""
        datasets: [{name: digits, train_size: 100}]
        model: {preset: vit_micro, image_size: 8, patch_size: 4, depth: 1}
        recipe: {name: small, epochs: 1, batch_size: 50}
    """)
    (folder / "tier.yaml").write_text(yaml.safe_dump(tier))
    return f"{folder}/tier"
