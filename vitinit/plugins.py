"""What a file of your own needs: a method, dataset, model family, metric, probe, table and their sisters.

CONTRIBUTING.md says what each implements. A name is imported when it is first used: a method needs torch and pydantic
only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitinit import lazy

if TYPE_CHECKING:
    from vitinit.analysis.curves.registry import CURVES
    from vitinit.analysis.figures.registry import FIGURES
    from vitinit.analysis.tables.registry import TABLES
    from vitinit.analysis.tables.table import Asked, Table, TableCell, compose
    from vitinit.benchmark.augmentations.registry import Augmentation
    from vitinit.benchmark.augmentations.registry import register as register_augmentation
    from vitinit.benchmark.datasets.dataset import Arrays, Dataset, InMemory
    from vitinit.benchmark.metrics.registry import Metric
    from vitinit.benchmark.models.family import ModelSpec
    from vitinit.benchmark.models.vit import ViT
    from vitinit.benchmark.optimizers.registry import register as register_optimizer
    from vitinit.initializers.attention import AttentionLayer, attention_layers
    from vitinit.initializers.registry import Aim, Initializer, Job, register
    from vitinit.initializers.whole_model import Place, WholeModel
    from vitinit.runners.probes.registry import Seen, probe
    from vitinit.runners.tracking.tracker import Tracker

__all__ = [
    "CURVES",
    "FIGURES",
    "TABLES",
    "Aim",
    "Arrays",
    "Asked",
    "AttentionLayer",
    "Augmentation",
    "Dataset",
    "InMemory",
    "Initializer",
    "Job",
    "Metric",
    "ModelSpec",
    "Place",
    "Seen",
    "Table",
    "TableCell",
    "Tracker",
    "ViT",
    "WholeModel",
    "attention_layers",
    "compose",
    "probe",
    "register",
    "register_augmentation",
    "register_optimizer",
]
HOMES = {
    "Aim": "initializers.registry",
    "Arrays": "benchmark.datasets.dataset",
    "Asked": "analysis.tables.table",
    "AttentionLayer": "initializers.attention",
    "Augmentation": "benchmark.augmentations.registry",
    "CURVES": "analysis.curves.registry",
    "Dataset": "benchmark.datasets.dataset",
    "FIGURES": "analysis.figures.registry",
    "InMemory": "benchmark.datasets.dataset",
    "Initializer": "initializers.registry",
    "Job": "initializers.registry",
    "Metric": "benchmark.metrics.registry",
    "ModelSpec": "benchmark.models.family",
    "Place": "initializers.whole_model",
    "Seen": "runners.probes.registry",
    "TABLES": "analysis.tables.registry",
    "Table": "analysis.tables.table",
    "TableCell": "analysis.tables.table",
    "Tracker": "runners.tracking.tracker",
    "ViT": "benchmark.models.vit",
    "WholeModel": "initializers.whole_model",
    "attention_layers": "initializers.attention",
    "compose": "analysis.tables.table",
    "probe": "runners.probes.registry",
    "register": "initializers.registry",
    "register_augmentation": "benchmark.augmentations.registry:register",
    "register_optimizer": "benchmark.optimizers.registry:register",
}
"""Modules of the names."""
__getattr__ = lazy(HOMES)
