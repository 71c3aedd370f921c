"""The command line that draws figures: a name for each, files for what can be drawn, a reason for what cannot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vitinit.analysis import command
from vitinit.analysis.figures import style
from vitinit.analysis.figures.registry import Drawing, Drawings
from vitinit.analysis.frame import Study, load_all
from vitinit.analysis.registry import refuse
from vitinit.analysis.tables.shared import check_baseline
from vitinit.analysis.text import count
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from seaborn import FacetGrid

Over = Callable[[Study, str], "dict[str, FacetGrid]"]


def main(drawings: Drawings, description: str, arguments: Sequence[str] | None = None, over: Over | None = None) -> int:
    """The command line.

    Args:
        drawings: Those of the package that is called with `python -m`.
        description: The first sentence of its help.
        arguments: Default: the process's.
        over: Draws a study over a field, where the command has `--x`.
    """
    return command.guarded(lambda: _run(drawings, description, arguments, over))


def _run(drawings: Drawings, description: str, arguments: Sequence[str] | None, over: Over | None) -> None:
    import matplotlib.pyplot as plt

    package, entries = drawings.packages[0], drawings.entries()
    folder = package.rpartition(".")[2]
    parser = command.parser(package, description, folder)
    names = [drawing.name for drawing in entries]
    parser.add_argument("--figure", metavar="NAME", choices=names, help="one of %(choices)s (default: all)")
    if over:
        parser.add_argument("--x", metavar="FIELD", help="score and gain over this field instead: width, lr, images")
    parser.add_argument("--metric", help="draw this in place of the studies' own metric, as top5: in figures-top5")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    args = parser.parse_args(arguments)
    found = load_all(args.results, args.study)
    studies = [study for study in found if study.contents.done]
    if not studies:
        found[0].require_runs()
    check_baseline(args.baseline, studies)
    style.set_defaults()
    chosen = [drawing for drawing in entries if args.figure in (None, drawing.name)]
    if over and args.x:
        chosen = [Drawing(f"over {args.x}", "", lambda study: over(study, args.x))]
    broken: list[VitinitError] = []
    for study in studies:
        out = study.home / (f"{folder}-{args.metric}" if args.metric else folder)
        if args.out:
            out = args.out / study.name if len(studies) > 1 else args.out
        command.folder(out)
        shown, files, absent = study.by(args.metric) if args.metric else study, 0, defaultdict[str, list[str]](list)
        for drawing in chosen:
            try:
                figures = drawing.figures(shown, args.baseline if args.baseline in study.rows else None)
            except VitinitError as error:
                broken.append(error)
                continue
            for file, grid in figures.items():
                style.save(grid, out / file)
                plt.close(grid.figure)
                files += 1
            if not figures:
                absent[drawing.why_none].append(drawing.name)
        said = [f"Study {study.name}: {count(files, 'figure')} in {out}"]
        if len(studies) == 1 or args.figure:
            said += [f"  not drawn: {', '.join(names)}: {reason}" for reason, names in absent.items()]
        command.say([] if args.quiet else said)
    refuse(broken)
