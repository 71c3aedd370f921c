"""The command line that draws figures: a name for each, files for what can be drawn, a reason for what cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from vitinit.analysis import command
from vitinit.analysis.figures import style
from vitinit.analysis.figures.registry import Drawing, Drawings
from vitinit.analysis.frame import Study, load_all
from vitinit.analysis.rows import check_baseline
from vitinit.analysis.text import count
from vitinit.initializers.errors import VitinitError, guarded


def finished(results: Sequence[Path] | None, name: str | None, baseline: str | None) -> list[Study]:
    """Return the studies that a command asks for and that have a finished run, and set the style of their figures.

    Raises:
        VitinitError: there is none, or none has the row that is the baseline.
    """
    found = load_all(results, name)
    studies = [study for study in found if study.contents.done]
    if not studies:
        found[0].require_runs()
    check_baseline(baseline, studies)
    style.set_defaults()
    return studies


def drawn(
    drawings: Iterable[Drawing], study: Study, baseline: str | None, broken: list[VitinitError]
) -> Iterator[tuple[Drawing, dict[str, style.Panels]]]:
    """Yield the figures of each drawing; errors are added to `broken`."""
    for drawing in drawings:
        try:
            yield drawing, drawing.figures(study, baseline if baseline in study.rows else None)
        except VitinitError as error:
            broken.append(error)


def main(drawings: Drawings, description: str, arguments: Sequence[str] | None = None) -> int:
    """The command line.

    Args:
        drawings: Those of the package that is called with `python -m`.
        description: The first sentence of its help.
        arguments: Default: the process's.
    """
    return guarded(lambda: _run(drawings, description, arguments))


def _run(drawings: Drawings, description: str, arguments: Sequence[str] | None) -> None:
    package, chosen = drawings.packages[0], drawings.entries()
    folder = package.rpartition(".")[2]
    parser = command.parser(package, description, folder)
    names = [drawing.name for drawing in chosen]
    parser.add_argument("--figure", metavar="NAME", choices=names, help="one of %(choices)s (default: all)")
    parser.add_argument("--metric", help="draw this in place of the studies' own metric, as top5: in figures-top5")
    parser.add_argument(
        "--width", metavar="INCHES", type=float, default=style.WIDTH, help="of a figure (default: %(default)s)"
    )
    parser.add_argument(
        "--font", metavar="POINTS", type=float, default=8, help="size of the text (default: %(default)s)"
    )
    args = parser.parse_args(arguments)
    studies = finished(args.results, args.study, args.baseline)
    style.set_defaults(args.width, args.font)
    if args.figure:
        chosen = [drawings.get(args.figure)]
    broken: list[VitinitError] = []
    place, alone = f"{folder}-{args.metric}" if args.metric else folder, len(studies) == 1
    for study in studies:
        out = command.folder(study.out(args.out, place, alone))
        shown, files, said = study.by(args.metric) if args.metric else study, 0, list[str]()
        for drawing, figures in drawn(chosen, shown, args.baseline, broken):
            for file, grid in figures.items():
                style.save(grid, out, file)
            files += len(figures)
            if not figures and (alone or args.figure):
                said.append(f"  not drawn: {drawing.name}: {drawing.why_none}")
        command.say([f"Study {study.name}: {count(files, 'figure')} in {out}", *said])
    command.refuse(broken)
