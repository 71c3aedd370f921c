"""The board, `board.md` beside the studies: gains of the catalogue and of the methods that `vitinit rank` compared.

One table for each setting, ranked by the lower end of the interval of the gain over its base.
`python -m analysis.pages` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median_high
from typing import NamedTuple

from vitinit.analysis.frame import Study
from vitinit.analysis.gains import gain, written
from vitinit.analysis.stats import Interval, Paired
from vitinit.analysis.tables.shared import own_bases
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import Comparison, Look

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


class Entry(NamedTuple):
    """One line of the board; the gains are written with their intervals."""

    name: str
    base: str
    low: float
    """Lower end of the interval of the gain."""
    gain: str
    n: int
    seconds: float | None
    """Median of what the initialisation takes; None where it is not recorded."""
    study: str
    placebo: str
    """Gain over the placebo; empty where there is none."""
    placebo_study: str
    """The study that has the placebo."""


def catalogue(study: Study, more: Study | None = None) -> Iterator[Entry]:
    """Yield an entry for every method, and for every base but the plain one.

    Args:
        study: Its rows are the entries.
        more: Study of the same setting, for placebos that the first has not.
    """
    methods = {row: study.examples[row, None].method for row in study.rows if row not in OWN_MODEL.values()}
    plain = {row: PLAIN for row, method in methods.items() if not method and row != PLAIN}
    bases = plain | own_bases(study) | OWN_MODEL
    for row, method in methods.items():
        over = gain(study, row, bases.get(row, ""))
        if over and over.interval and (method is None or method.name != "placebo"):
            placebos = ((_text(gain(one, row, f"{row}, placebo")), one.name) for one in (study, more) if one)
            placebo = next((found for found in placebos if found[0]), ("", ""))
            its = (over.interval.low, _text(over), over.n, _seconds(study, row), study.name)
            yield Entry(row, bases[row], *its, *placebo)


def ranked(study: Study, last: Look) -> Entry:
    """Return the entry of a study of `vitinit rank`, at its last look."""
    (row, base), its = study.contrasts[0], last.base
    gained = (its.low, at_look(its), last.n, _seconds(study, row), study.name)
    return Entry(row, base, *gained, at_look(last.placebo) if last.placebo else "", study.name)


def page(studies: Iterable[Study]) -> str:
    """Return the board of these studies as Markdown; empty where none of them has an entry."""
    from vitinit.analysis.pages.render import render

    by_name = {study.name: study for study in studies}
    plans = [(study, plan) for study in by_name.values() if (plan := looks.read(study.folders[0] / study.name))]
    tables = []
    for tier, (title, name) in SETTINGS.items():
        entries = [ranked(study, plan.taken[-1]) for study, plan in plans if plan.tier == tier and plan.taken]
        if name in by_name:
            entries += catalogue(by_name[name], by_name.get(PLACEBOS.get(tier, "")))
        if entries:
            tables.append((title, sorted(entries, key=lambda each: -each.low)))
    return render("board.md.j2", tables=tables) if tables else ""


def at_look(its: Comparison) -> str:
    """Write the gain that a look found, with its interval."""
    return written(its.gain, Interval(its.low, its.high))


def _seconds(study: Study, row: str) -> float | None:
    seconds = [run.init.seconds for run in study.cells.get((study.columns[0], row), ()) if run.init]
    return median_high(seconds) if seconds else None


def _text(its: Paired | None) -> str:
    return written(its.mean, its.interval) if its and its.interval else ""
