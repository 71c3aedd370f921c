"""Figures from records, and from the attention maps kept beside them: `python -m analysis.figures`."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figures import attention, drawing
from analysis.figures.comparisons import across_datasets, cost, differences
from analysis.figures.curves import accuracy, train_size
from analysis.figures.kept import NONE
from analysis.figures.offsets import offsets


def drawings(baseline: str | None = None) -> drawing.Drawings:
    """By name: what draws figures, and why it may draw none."""
    pairs = "no row has a seed in common with its base, or with the baseline"
    return {
        "accuracy": (accuracy, "no runs that were evaluated after several epochs"),
        "train_size": (train_size, "no dataset with several train sizes"),
        "differences": (lambda study: differences(study, baseline), pairs),
        "across_datasets": (across_datasets, "no two rows with three seeds on each of two or more datasets"),
        "cost": (lambda study: cost(study, baseline), pairs),
        "attention_offsets": (offsets, "no record holds attention by offset"),
        "attention_before": (attention.before, NONE),
        "attention_after": (attention.after, NONE),
        "attention_training": (attention.training, NONE),
        "attention_layers": (attention.layers, NONE),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    return drawing.main("analysis.figures", "Draw figures from records as PDF and PNG.", drawings, arguments)
