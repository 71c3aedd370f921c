"""The command line that draws figures: a name for each, files for what can be drawn, a reason for what cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis import command
from analysis.figures import fonts, style
from analysis.figures.registry import Drawings
from analysis.frame import LOCAL, Study, load
from analysis.tables.shared import check_baseline


def main(
    drawings: Drawings,
    description: str,
    arguments: Sequence[str] | None = None,
    remarks: Callable[[Study], list[str]] = lambda study: [],
) -> int:
    """The command line.

    Args:
        drawings: Those of the package that is called with `python -m`.
        description: The first sentence of its help.
        arguments: Default: the process's.
        remarks: Lines to print of a study, before anything is drawn.
    """
    entries = drawings.entries()
    parser = command.parser(drawings.package, description, LOCAL / drawings.package.rpartition(".")[2])
    names = [drawing.name for drawing in entries]
    parser.add_argument("--figure", metavar="NAME", choices=names, help="one of %(choices)s (default: all)")
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
        for drawing in entries:
            if args.figure not in (None, drawing.name):
                continue
            figures = drawing.figures(study, args.baseline)
            if not figures:
                print(f"{drawing.name}: not drawn, {drawing.why_none}")
            for file, figure in figures.items():
                style.save(figure, out / file)
                plt.close(figure)
                print(f"wrote {out / file}.pdf and .png")

    return command.guarded(run)
