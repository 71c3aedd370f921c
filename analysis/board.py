"""The board, `board.md` beside the studies: gains of the catalogue and of the methods that `vitinit rank` compared.

One table for each setting, ranked by the lower end of the interval of the gain over its base.
`python -m analysis.pages` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vitinit.analysis.frame import Study
from vitinit.analysis.gains import gain, written
from vitinit.analysis.stats import Interval, Paired
from vitinit.analysis.tables.shared import own_bases
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import Comparison

SETTINGS = {
    "quick": ("Quick: 5 epochs, 5,000 images of CIFAR-10", "catalogue-small"),
    "standard": ("Standard: 40 epochs, 10,000 images of CIFAR-10", "standard"),
}
"""Tiers of `vitinit rank`: title, and the study whose rows are the catalogue's."""
PLACEBOS = {"standard": "convit-anatomy"}
"""Study of the same setting, with placebos that the first has not."""
OWN_MODEL = {"ConViT": "DeiT"}
"""Base of a row that has a model of its own."""
PLAIN = "Kaiming uniform"
"""Base that other bases are compared with."""


@dataclass(frozen=True)
class Entry:
    """One line of the board; the gains are written with their intervals."""

    name: str
    base: str
    gain: str
    low: float
    """Lower end of the gain's interval."""
    placebo: str
    """Gain over the placebo; empty where there is none."""
    n: int
    seconds: float | None
    """Median of what the initialisation takes; None where it is not recorded."""
    study: str
    placebo_study: str = ""
    """The study that has the placebo, where it is another one."""


def catalogue(study: Study, more: Study | None) -> Iterator[Entry]:
    """Yield an entry for every method, and for every base but the plain one.

    Args:
        study: Its rows are the entries.
        more: Study of the same setting, for placebos that the first has not.
    """
    bases = own_bases(study)
    for row in study.rows:
        method = study.examples[row, None].method
        base = OWN_MODEL.get(row) or bases.get(row) or (PLAIN if method is None else "")
        if (method and method.name == "placebo") or base in ("", row) or row in OWN_MODEL.values():
            continue
        over = gain(study, row, base)
        if not over or not over.interval:
            continue
        placebo, elsewhere = _text(gain(study, row, f"{row}, placebo")), ""
        if more and not placebo and (placebo := _text(gain(more, row, f"{row}, placebo"))):
            elsewhere = more.name
        seconds = _seconds(study, row)
        yield Entry(row, base, _text(over), over.interval.low, placebo, over.n, seconds, study.name, elsewhere)


def ranked(study: Study) -> tuple[str, Entry] | None:
    """Return the tier and the entry of a study of `vitinit rank`, at its last look; None where it has none."""
    plan = looks.read(study.folders[0] / study.name)
    if plan is None or not plan.taken:
        return None
    last, (row, base) = plan.taken[-1], study.contrasts[0]
    placebo = _at_look(last.placebo) if last.placebo else ""
    seconds = _seconds(study, row)
    return plan.tier, Entry(row, base, _at_look(last.base), last.base.low, placebo, last.n, seconds, study.name)


def page(studies: Iterable[Study]) -> str:
    """Return the board of these studies as Markdown; empty where none of them has an entry."""
    from vitinit.analysis.pages.render import render

    by_name = {study.name: study for study in studies}
    ranks = [found for study in by_name.values() if (found := ranked(study))]
    tables = []
    for tier, (title, name) in SETTINGS.items():
        entries = [entry for its, entry in ranks if its == tier]
        if name in by_name:
            entries += catalogue(by_name[name], by_name.get(PLACEBOS.get(tier, "")))
        if entries:
            tables.append((title, sorted(entries, key=lambda each: -each.low)))
    return render("board.md.j2", tables=tables) if tables else ""


def _seconds(study: Study, row: str) -> float | None:
    seconds = sorted(run.init.seconds for run in study.cells.get((study.columns[0], row), ()) if run.init)
    return seconds[len(seconds) // 2] if seconds else None


def _text(difference: Paired | None) -> str:
    """Write a gain with its interval; nothing where it has none."""
    return written(difference.mean, difference.interval) if difference and difference.interval else ""


def _at_look(its: Comparison) -> str:
    return written(its.gain, Interval(its.low, its.high))
