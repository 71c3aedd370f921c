"""Figures from records, and from the attention maps kept beside them: `python -m analysis.figures`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from analysis import command
from analysis.build import check_baseline
from analysis.figures import attention, style
from analysis.figures.comparisons import across_datasets, cost, differences
from analysis.figures.curves import accuracy, train_size
from analysis.figures.offsets import offsets
from analysis.frame import LOCAL, Study, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT = "no run with attention maps (vitinit run --keep-maps)"


def drawings(baseline: str | None = None) -> dict[str, tuple[Callable[[Study], dict[str, Figure]], str]]:
    """By name: what draws figures, and why it may draw none."""
    pairs = "no row has a seed in common with the baseline"
    return {
        "accuracy": (accuracy, ""),
        "train_size": (train_size, "no dataset with several train sizes"),
        "differences": (lambda study: differences(study, baseline), pairs),
        "across_datasets": (across_datasets, "no row with three seeds on each of two or more datasets"),
        "cost": (lambda study: cost(study, baseline), pairs),
        "attention_offsets": (offsets, "no record holds attention by offset"),
        "attention_before": (attention.before, KEPT),
        "attention_after": (attention.after, KEPT),
        "attention_training": (attention.training, KEPT),
        "attention_layers": (attention.layers, KEPT),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = command.parser("analysis.figures", "Draw figures from records as PDF and PNG.", LOCAL / "figures")
    parser.add_argument("--figure", metavar="NAME", choices=drawings(), help="one of %(choices)s (default: all)")
    args = parser.parse_args(arguments)

    def run() -> None:
        study = load(args.results, args.study)
        study.require_runs()
        check_baseline(args.baseline, [study])
        for line in study.summary():
            print(line)
        style.set_defaults()
        import matplotlib.pyplot as plt

        out = command.folder(args.out)
        for name, (draw, why_none) in drawings(args.baseline).items():
            if args.figure not in (None, name):
                continue
            figures = draw(study)
            if not figures:
                print(f"{name}: not drawn, {why_none}")
            for file, figure in figures.items():
                style.save(figure, out / file)
                plt.close(figure)
                print(f"wrote {out / file}.pdf and .png")

    return command.guarded(run)
