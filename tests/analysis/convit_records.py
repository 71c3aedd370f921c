"""Synthetic records of the studies that stand beside ConViT's Tables 2 and 3, as the grids have them."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

from synthetic_records import finished, write

from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.spec import RunSpec

GPSA: dict[str, Any] = {"name": "convit_gpsa", "params": {"locality_strength": 1.0}}
EFFICIENCY: dict[str, dict[str, Any] | None] = {
    "DeiT": None,
    "ConViT": GPSA,
    "Mimetic": {"name": "mimetic"},
    "Imp.-3": {"name": "impulse", "params": {"kernel_size": 3, "offsets": "random"}},
}
EPOCHS = {64_058: 6000, 128_116: 3000, None: 300}
"""On so many images of ImageNet, as in the paper's Table 2."""
ABLATION: dict[str, dict[str, Any] | None] = {
    "a ConViT": GPSA,
    "c no conv init": {**GPSA, "params": GPSA["params"] | {"conv_init": False}},
    "e DeiT": None,
}


def run(
    study: str, row: str, top1: float, *, dataset: str = "imagenet", train_size: int | None = None, seed: int = 0
) -> Any:
    """The record of one run; on ImageNet in the paper's setting, on another dataset a small one."""
    method = (ABLATION | EFFICIENCY)[row]
    gated = method is not None and method["name"] == "convit_gpsa"
    large = (432, 9) if gated else (384, 6)
    (width, heads), depth = (large, 12) if dataset == "imagenet" else ((48, 4), 3)
    model = {"width": width, "heads": heads, "depth": depth, "position": "learned", "pool": "token", "qkv_bias": False}
    model |= {"image_size": 224, "patch_size": 16, "drop_path_rate": 0.1} if dataset == "imagenet" else {}
    if gated:
        model |= {"arch": "convit", "gpsa_layers": 10 if dataset == "imagenet" else 2}
    epochs = EPOCHS[train_size] if dataset == "imagenet" else 1
    spec = RunSpec.model_validate(
        {
            "dataset": {"name": dataset, "train_size": train_size},
            "model": {"image_size": 32, "patch_size": 4, **model},
            "base": {"name": "trunc_normal", "params": {"std": 0.02}},
            "method": method,
            "recipe": {"name": "small", "epochs": epochs, "evaluate_every": epochs, "batch_size": 64, "lr": 1e-3},
            "seed": seed,
        }
    )
    return finished(spec, (top1,), study=study, row=row)


def efficiency_small(root: Path) -> Path:
    """Four rows on four subsets of CIFAR-10, three seeds."""
    for (place, row), size, seed in product(enumerate(EFFICIENCY), (500, 1000, 2500, 5000), range(3)):
        top1 = round(5 * math.log10(size) + place + seed * (place + 1) / 4, 2)
        write(root, run("convit-efficiency-small", row, top1, dataset="cifar10", train_size=size, seed=seed))
    return root


def masked(record: RunRecord, **top1: float) -> RunRecord:
    """The record with these accuracies: `content_1=30` without content in one layer."""
    cells = [
        {"term": term, "layers": int(layers), "images": 1000, "top1": value, "top1_whole": record.score}
        for (term, layers), value in ((name.split("_"), value) for name, value in top1.items())
    ]
    return type(record).model_validate(record.model_dump() | {"masked": cells})


STUDIES = {"convit efficiency, small": efficiency_small}
"""For `contract_studies`."""
