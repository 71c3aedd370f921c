"""Section of the page for one study: its answer, tables, figures, runs and provenance."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.plotting import style
from vitinit.analysis.registry import refuse
from vitinit.analysis.report.answer import Answer, answer
from vitinit.analysis.report.charts import Plot, plot
from vitinit.analysis.report.choices import choices, texts
from vitinit.analysis.report.maps import Maps, attention_maps
from vitinit.analysis.report.packing import packed
from vitinit.analysis.tables.contrasts import of_contrasts
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import Column, columns
from vitinit.analysis.tables.shared import Table
from vitinit.analysis.text import count, one_line
from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from vitinit.benchmark.settings import flat
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from concurrent.futures import Future

SPARK = (96, 24)
"""Width and height of a small curve in pixels."""
SHOWN_ELSEWHERE = ("differences", "attention_before", "attention_after", "attention_layers")
"""Drawings that the page has no picture of: its forest plot shows the same differences, and the sliders of
`attention_training` the same maps."""

MOST_PANELS = 100
"""Upper limit of panels of one kind of line chart. A study of more cells would fill the page with them."""


@dataclass(frozen=True)
class Run:
    """A finished run."""

    record: RunRecord
    dataset: str
    """Column label."""
    setting: str
    """Model, base and method, with their parameters."""
    images_per_s: float | None
    """Median over its epochs."""
    spark: str
    """Points of its curve: its score over epochs, from 0 to the highest of the dataset."""
    epochs: str
    """Its epochs, a line each below a line of heads, between tabs: numbers alone, and so safe in HTML."""


@dataclass(frozen=True)
class Picture:
    """A figure that stands still."""

    title: str
    svg: str
    """Packed; see `packed`."""


@dataclass(frozen=True)
class Drawn:
    """The figures of one kind: line charts, pictures, or attention maps."""

    name: str
    caption: str
    """Reading help, in a sentence."""
    plots: list[Plot]
    pictures: list[Picture]
    maps: list[Maps]

    def __bool__(self) -> bool:
        return bool(self.plots or self.pictures or self.maps)


@dataclass(frozen=True)
class Costly:
    """Parts of a section that take long, of text alone: another process can compute them."""

    figures: list[Drawn]
    errors: list[str]
    """Errors of figures that are missing."""
    metrics: dict[str, str]
    choices: str


@dataclass(frozen=True)
class Section:
    """Section of the page for one study."""

    study: Study
    answer: Answer
    facts: dict[str, str]
    tables: list[tuple[Table, list[Column], list[str]]]
    """Each with the notes that no table before it has."""
    figures: list[Drawn]
    left_out: str
    """Reason why the page has not all figures of the study; empty where it has."""
    runs: list[Run]
    without_numbers: list[tuple[FailureRecord | SkipRecord, str]]
    """Runs that failed or were skipped, with the reason."""
    images: dict[tuple[str, ...], int]
    """Dataset, training, validation and test images, classes, checksum; and in how many runs."""
    provenance: dict[str, list[tuple[str, int]]]
    """By recorded field: values, and in how many runs."""
    metrics: dict[str, str]
    """Labels of the metrics that a reader can choose, by name."""
    choices: str
    """Gains and tables for each choice; see `choices`."""
    texts: str
    """The tables as `analysis.tables` writes them, by name and format, packed."""
    broken: list[VitinitError]
    """Missing parts of the page, because a file of code has an error, or one of attention maps."""

    @property
    def score_name(self) -> str:
        """Name of the metric of its runs: `test top-1`."""
        return style.score_name(self.study.runs)

    @property
    def weight(self) -> tuple[bool, int]:
        """Rank of a study on the page: results before choices, then by images seen in the training of all its runs."""
        seen = sum(run.record.dataset.train * run.record.spec.recipe.epochs for run in self.runs)
        return not _chooses(self.study), seen

    @property
    def split(self) -> str:
        """On which images: `test`, `validation`, or nothing where it has both."""
        return style.split(self.study.runs)


def sections(studies: Sequence[Study], baseline: str | None = None) -> list[Section]:
    """Gather what the page shows of several studies; on all cores.

    Args:
        studies: Each with a finished run.
        baseline: As in `build`, for studies that have such a row.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    asked = [(study, baseline if baseline in study.rows else None) for study in studies]
    workers = min(len(studies), os.cpu_count() or 1)
    if workers == 1 or sys.platform != "linux":  # elsewhere a fork is not safe
        return [section(*each) for each in asked]
    _ASKED[:] = asked
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        parts = [pool.submit(_costly, place) for place in range(len(asked))]
        return [section(*each, its) for each, its in zip(asked, parts, strict=True)]


_ASKED: list[tuple[Study, str | None]] = []
"""Studies for forked processes, which have them without a copy."""


def _costly(place: int) -> Costly:
    return costly(*_ASKED[place])


def section(study: Study, baseline: str | None = None, parts: Future[Costly] | None = None) -> Section:
    """Gather what the page shows of a study.

    Args:
        study: With a finished run.
        baseline: As in `build`.
        parts: Those that take long, where another process computes them.
    """
    broken: list[VitinitError] = []
    tables = list(_tables(study, baseline, broken))
    if not tables:
        refuse(broken)
    records = [study.contents.done[run_id] for run_id in study.runs["run_id"]]
    highest: dict[str, float] = defaultdict(float)
    for record in records:
        highest[study.column[record.run_id]] = max(highest[study.column[record.run_id]], record.best[1])
    its = parts.result() if parts else costly(study, baseline)
    broken += map(VitinitError, its.errors)
    return Section(
        study=study,
        answer=answer(tables[0], _named(tables, baseline)),
        facts=_facts(study, records),
        tables=list(_with_notes(tables)),
        figures=[drawn for drawn in its.figures if drawn],
        left_out=_left_out(study, its.figures),
        runs=[_run(record, study.column[record.run_id], highest) for record in records],
        without_numbers=list(_without_numbers(study)),
        images=Counter(_images(record) for record in records),
        provenance=_provenance(records),
        metrics=its.metrics,
        choices=its.choices,
        texts=packed(json.dumps(texts(tables))),
        broken=broken,
    )


def _tables(study: Study, baseline: str | None, broken: list[VitinitError]) -> Iterator[Table]:
    for name in names(study)[:1] if _chooses(study) else names(study):
        try:
            yield build(study, name, baseline=baseline)
        except VitinitError as error:
            broken.append(error)


def _named(tables: list[Table], baseline: str | None) -> Table | None:
    """The comparisons that the grid names, unless others are asked for."""
    return next((table for table in tables if of_contrasts(table)), None) if baseline is None else None


def _with_notes(tables: list[Table]) -> Iterator[tuple[Table, list[Column], list[str]]]:
    said: set[str] = set()
    for table in tables:
        yield table, columns(table), [note for note in table.notes if note not in said]
        said |= set(table.notes)


def _facts(study: Study, records: list[RunRecord]) -> dict[str, str]:
    contents = study.contents
    seeds = sorted({record.spec.seed for record in records})
    written = sorted(record.written[:10] for record in records)
    return {
        "Runs": f"{len(records)} finished, {len(contents.failed)} failed, {len(contents.skipped)} skipped; "
        f"{count(len(contents.problems), 'invalid file')}",
        "Datasets": ", ".join(study.columns),
        "Initialisations": ", ".join(study.rows),
        "Seeds": ", ".join(map(str, seeds)),
        "Models": "; ".join(sorted({record.spec.model.describe() for record in records})),
        "Recorded": " to ".join(dict.fromkeys((written[0], written[-1]))),
        "Computing time": f"{sum(record.seconds for record in records) / 3600:,.2f} hours",
    }


def _run(record: RunRecord, dataset: str, highest: dict[str, float]) -> Run:
    spec = record.spec
    speeds = [epoch.images_per_s for epoch in record.history if epoch.images_per_s is not None]
    setting = [spec.model.describe()]
    for item in (spec.base, spec.method):
        if item:
            setting.append(
                " ".join([item.name, *(f"{name}={json.dumps(value)}" for name, value in item.params.items())])
            )
    width, height = SPARK
    step = (width - 4) / max(spec.recipe.epochs - 1, 1)
    tops = {epoch: score / (highest[dataset] or 1) for epoch, score in record.evaluated.items()}
    points = [f"{2 + (epoch - 1) * step:.1f},{height - 2 - (height - 4) * top:.1f}" for epoch, top in tops.items()]
    return Run(
        record=record,
        dataset=dataset,
        setting="; ".join(setting),
        images_per_s=median(speeds) if speeds else None,
        spark=" ".join(points),
        epochs=_epochs(record),
    )


def _epochs(record: RunRecord) -> str:
    lines: list[tuple[str, ...]] = [("epoch", "rate", "train loss", "loss", "score (%)", "seconds", "images/s")]
    for epoch in record.history:
        loss = epoch.val_loss if epoch.test_loss is None else epoch.test_loss
        numbers = ((epoch.lr, ".3g"), (epoch.train_loss, ".4f"), (loss, ".4f"), (epoch.score, ".2f"))
        speed = ((epoch.seconds, ".1f"), (epoch.images_per_s, ",.0f"))
        texts = ("–" if value is None else format(value, form) for value, form in (*numbers, *speed))
        lines.append((str(epoch.epoch), *texts))
    return "\n".join(map("\t".join, lines))


def costly(study: Study, baseline: str | None) -> Costly:
    """Compute what takes long."""
    import matplotlib as mpl

    errors: list[str] = []
    with mpl.rc_context({"image.interpolation": "none"}):  # SVG then holds a pixel a number: smaller, and sooner drawn
        figures = list(_figures(study, baseline, errors))
    return Costly(figures, errors, *(({}, "") if _chooses(study) else choices(study, baseline)))


def _figures(study: Study, baseline: str | None, broken: list[str]) -> Iterator[Drawn]:
    """Those that there are; without plots and pictures where there would be too many."""
    import matplotlib.pyplot as plt

    from vitinit.analysis.curves.registry import CURVES
    from vitinit.analysis.figures.registry import FIGURES

    style.set_defaults()
    for drawings in (FIGURES, CURVES):
        for drawing in drawings.entries():
            if drawing.name in SHOWN_ELSEWHERE or (_chooses(study) and drawing.name != "accuracy"):
                continue
            try:
                maps = attention_maps(study) if drawing.name == "attention_training" else []
                charts = {} if maps else drawings.charts(drawing, study, baseline)
                figures = drawing.figures(study, baseline) if charts is None else {}
            except VitinitError as error:
                broken.append(str(error))
                continue
            pictures = []
            for figure in figures.values():
                title = " ".join(f"{figure.get_suptitle()}. {style.caption_of(figure)}".replace(r"\$", "$").split())
                pictures.append(Picture(title, packed(style.to_svg(figure))))
                plt.close(figure)
            drawn = list((charts or {}).values())
            if drawn or pictures or maps:
                few = sum(len(chart.panels) for chart in drawn) <= MOST_PANELS
                plots = [plot(chart, study) for chart in drawn] if few else []
                yield Drawn(drawing.name, drawing.caption, plots, pictures, maps)


def _chooses(study: Study) -> bool:
    """Return True if all of it is measured on validation images, which choose something for another study."""
    return set(study.runs["split"]) == {"val"}


def _left_out(study: Study, drawings: list[Drawn]) -> str:
    if _chooses(study):
        return "it chooses on validation images, and is no result"
    many = [drawn.name.replace("_", " ") for drawn in drawings if not drawn]
    return f"there would be more than {MOST_PANELS} panels of {' and of '.join(many)}" if many else ""


def _without_numbers(study: Study) -> Iterator[tuple[FailureRecord | SkipRecord, str]]:
    def place(run: FailureRecord | SkipRecord) -> tuple[object, ...]:
        return study.columns.index(study.column[run.run_id]), study.rows.index(run.row), run.spec.seed, run.run_id

    for failed in sorted(study.contents.failed.values(), key=place):
        yield failed, one_line(f"{failed.error}: {failed.message}", 500)
    for skipped in sorted(study.contents.skipped.values(), key=place):
        yield skipped, one_line(skipped.reason, 500)


def _images(record: RunRecord) -> tuple[str, ...]:
    data = record.dataset
    numbers = ("none" if images is None else f"{images:,}" for images in (data.train, data.val, data.test))
    return (record.spec.dataset.label, *numbers, str(data.classes), data.checksum)


def _provenance(records: Iterable[RunRecord]) -> dict[str, list[tuple[str, int]]]:
    fields: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        recorded = flat(json.dumps(record.environment | record.execution | {"precision": record.spec.recipe.precision}))
        for name, value in recorded.items():
            fields[name][value] += 1
    known = {name: values for name, values in fields.items() if not values.keys() <= {"null", "{}"}}
    return {name: sorted(values.items(), key=lambda item: (-item[1], item[0])) for name, values in known.items()}
