"""The command line that draws figures: a name for each, files for what can be drawn, a reason for what cannot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
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


def main(
    drawings: Drawings,
    description: str,
    arguments: Sequence[str] | None = None,
    remarks: Callable[[Study], list[str]] = lambda study: [],
    over: Callable[[Study, str], dict[str, FacetGrid]] | None = None,
) -> int:
    """The command line.

    Args:
        drawings: Those of the package that is called with `python -m`.
        description: The first sentence of its help.
        arguments: Default: the process's.
        remarks: Lines to print of a study, before anything is drawn.
        over: Draws a study over a field, where the command has `--x`.
    """

    def run() -> None:
        entries = drawings.entries()
        folder = drawings.package.rpartition(".")[2]
        parser = command.parser(drawings.package, description, folder)
        names = [drawing.name for drawing in entries]
        parser.add_argument("--figure", metavar="NAME", choices=names, help="one of %(choices)s (default: all)")
        if over:
            parser.add_argument(
                "--x", metavar="FIELD", help="score and gain over this field instead: width, lr, images"
            )
        parser.add_argument("--metric", help="draw this in place of the studies' own metric, as top5: in figures-top5")
        parser.add_argument("--quiet", action="store_true", help="print nothing")
        args = parser.parse_args(arguments)
        found = load_all(args.results, args.study)
        studies = [study for study in found if study.contents.done]
        if not studies:
            found[0].require_runs()
        studies = [study.by(args.metric) for study in studies] if args.metric else studies
        check_baseline(args.baseline, studies)
        style.set_defaults()
        chosen = [drawing for drawing in entries if args.figure in (None, drawing.name)]
        broken: list[VitinitError] = []
        if over and args.x:
            chosen = [Drawing(f"over {args.x}", 0, "", "", lambda study: over(study, args.x), to_baseline=False)]
        for study in studies:
            out = study.home / (f"{folder}-{args.metric}" if args.metric else folder)
            if args.out:
                out = args.out / study.name if len(studies) > 1 else args.out
            files, absent = _draw(study, chosen, args.baseline if args.baseline in study.rows else None, out, broken)
            why = [*remarks(study), *absent] if len(studies) == 1 or args.figure else []
            said = [f"Study {study.name}: {count(files, 'figure')} in {out}", *(f"  {line}" for line in why)]
            command.say([] if args.quiet else said)
        if len(studies) > 1 and not (args.figure or args.quiet):
            command.say(["What is not drawn, and why: --study NAME"])
        refuse(broken)

    return command.guarded(run)


def _draw(
    study: Study, drawings: Sequence[Drawing], baseline: str | None, out: Path, broken: list[VitinitError]
) -> tuple[int, list[str]]:
    """Draw and write a study's figures: how many, and a line for each reason why others are not drawn."""
    import matplotlib.pyplot as plt

    files, absent = 0, defaultdict[str, list[str]](list)
    command.folder(out)
    for drawing in drawings:
        try:
            figures = drawing.figures(study, baseline)
        except VitinitError as error:
            broken.append(error)
            continue
        if not figures:
            absent[drawing.why_none].append(drawing.name)
        for file, figure in figures.items():
            style.save(figure, out / file)
            plt.close(figure.figure)
            files += 1
    return files, [f"not drawn: {', '.join(names)}: {reason}" for reason, names in absent.items()]
