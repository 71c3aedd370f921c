"""The commands that draw figures: files for what can be drawn, a reason for what cannot."""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from vitinit.analysis import command
from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures import style
from vitinit.analysis.figures.registry import FIGURES, Drawing, Drawings
from vitinit.analysis.frame import Study, load_all, metric_name
from vitinit.initializers.errors import VitinitError, count


def finished(results: Sequence[Path] | None, name: str | None, baseline: str | None) -> list[Study]:
    """Return the studies that a command asks for and that have a finished run, and set the style of their figures.

    Raises:
        VitinitError: there is none.
    """
    every = load_all(results, name, baseline)
    studies = [study for study in every if study.contents.done]
    if not studies:
        every[0].require_runs()
    style.set_defaults()
    gc.set_threshold(50_000)  # a figure is many objects: to look for cycles as often as usual takes a third of the time
    return studies


def drawn(
    drawings: Iterable[Drawing], study: Study, broken: list[VitinitError]
) -> Iterator[tuple[Drawing, dict[str, style.Panels]]]:
    """Yield the figures of each drawing; errors are added to `broken`."""
    for drawing in drawings:
        try:
            yield drawing, drawing.figures(study)
        except VitinitError as error:
            broken.append(error)


def figure(study: Study, name: str) -> style.Panels:
    """Draw a figure or curve by the name of its file.

    Raises:
        VitinitError: there is none of this name, or the records do not give it.
    """
    begin = name.partition("-")[0]
    drawing = (CURVES if begin in CURVES.by_name() else FIGURES).get(begin)
    figures = drawing.figures(study)
    if name not in figures:
        raise VitinitError(f"study {study.name!r} has no figure {name}: {', '.join(figures) or drawing.why_none}")
    return figures[name]


def command_of(drawings: Drawings, description: str) -> Callable[..., None]:
    """Return the command that draws what the files of one folder register, with the first sentence of its help."""
    folder = drawings.packages[0].rpartition(".")[2]

    def run(
        results: command.ResultsOption = None,
        name: command.StudyOption = None,
        baseline: command.BaselineOption = None,
        out: command.OutOption = None,
        figure: Annotated[
            str | None, typer.Option(metavar="NAME", help="This alone, such as accuracy or gating. Default: all.")
        ] = None,
        metric: command.MetricOption = "last",
        width: Annotated[float, typer.Option(metavar="INCHES", help="Width of a figure.")] = style.WIDTH,
        font: Annotated[float, typer.Option(metavar="POINTS", help="Size of the text.")] = 8,
    ) -> None:
        studies = finished(results, name, baseline)
        style.set_defaults(width, font)
        chosen = [drawings.get(figure)] if figure else drawings.entries()
        broken: list[VitinitError] = []
        metric = metric_name(metric)
        place, alone = folder if metric == "last" else f"{folder}-{metric}", len(studies) == 1
        for study in studies:
            target = study.out(out, place, alone)
            shown, files, said = study.by(metric), 0, list[str]()
            for drawing, figures in drawn(chosen, shown, broken):
                for file, grid in figures.items():
                    style.save(grid, target, file)
                files += len(figures)
                if not figures and (alone or figure):
                    said.append(f"  not drawn: {drawing.name}: {drawing.why_none}")
            command.say([f"Study {study.name}: {count(files, 'figure')} in {target}", *said])
        command.refuse(broken)

    run.__doc__ = description
    return run
