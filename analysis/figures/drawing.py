"""The command line that draws figures: a name for each, files for what can be drawn, a reason for what cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from analysis import command
from analysis.figures import fonts, style
from analysis.frame import LOCAL, Study, load
from analysis.tables.build import check_baseline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawings = dict[str, tuple[Callable[[Study], "dict[str, Figure]"], str]]
"""By name: what draws figures, by the name of their files, and why it may draw none."""


def main(
    module: str,
    description: str,
    drawings: Callable[[str | None], Drawings],
    arguments: Sequence[str] | None = None,
    remarks: Callable[[Study], list[str]] = lambda study: [],
) -> int:
    """The command line.

    Args:
        module: What is called with `python -m`.
        description: Its first sentence.
        drawings: For a baseline.
        arguments: Default: the process's.
        remarks: Lines to print of a study, before anything is drawn.
    """
    parser = command.parser(module, description, LOCAL / module.rpartition(".")[2])
    parser.add_argument("--figure", metavar="NAME", choices=drawings(None), help="one of %(choices)s (default: all)")
    args = parser.parse_args(arguments)

    def run() -> None:
        study = load(args.results, args.study)
        study.require_runs()
        check_baseline(args.baseline, [study])
        for line in [*study.summary(), *remarks(study)]:
            print(line)
        style.set_defaults()
        for line in fonts.use_for([study]):
            print(line)
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
