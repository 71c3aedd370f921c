"""The board, `board.md` beside the studies: gains of the catalogue and of the methods that `vitinit rank` compared.

One table for each setting, and one of other architectures, ranked by the lower end of the interval of the gain.
`python -m analysis.pages` writes it.
"""

from collections.abc import Iterable, Iterator
from statistics import median_high
from typing import NamedTuple

from vitinit.analysis.comparison import compare, written
from vitinit.analysis.frame import Study
from vitinit.analysis.rows import own_bases, placebos
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import Look

SETTINGS = {
    "quick": ("Quick: 5 epochs, 5,000 images of CIFAR-10, one draw, rate 1e-3", "standard-mechanism"),
    "tuned": ("Catalogue: 5 epochs, 5,000 images of CIFAR-10 drawn at each seed, tuned rates", "catalogue-small"),
    "standard": ("Standard: 40 epochs, 10,000 images of CIFAR-10 drawn at each seed", "standard"),
}
"""Lists of the board, none of which mixes settings: title, and the study whose rows it has. Those of `quick` and
`standard` also have what `vitinit rank` compared in that tier, whose setting they are."""
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
    alone: bool
    """False where the model differs from the base's, so that the difference is no gain of an initialisation."""


def catalogue(study: Study) -> Iterator[Entry]:
    """Yield an entry for every method, and for every base but the plain one."""
    methods = {row: study.examples[row, None].method for row in study.rows if row not in OWN_MODEL.values()}
    plain = {row: PLAIN for row, method in methods.items() if not method and row != PLAIN}
    bases, column = plain | own_bases(study) | OWN_MODEL, study.columns[0]
    of = placebos(study)
    controls = {row: placebo for placebo, (row, keeps) in of.items() if keeps != "entropy"}
    for row, method in methods.items():
        over = compare(study, (row, bases.get(row, "")), column)
        if over and over.verdict and row not in of and (method is None or method.name != "placebo"):
            control = compare(study, (row, controls.get(row, "")), column)
            alone = study.examples[row, None].model == study.examples[bases[row], None].model
            placebo = control.told if control else ""
            yield Entry(row, bases[row], over.low, over.told, over.n, _seconds(study, row), study.name, placebo, alone)


def ranked(study: Study, last: Look) -> Entry:
    """Return the entry of a study of `vitinit rank`, at its last look."""
    (row, base), comparison = next(iter(study.pairs.values())), last.base
    placebo = at_look(last.placebo) if last.placebo else ""
    return Entry(
        row, base, comparison.low, at_look(comparison), last.n, _seconds(study, row), study.name, placebo, True
    )


def page(studies: Iterable[Study]) -> str:
    """Return the board of these studies as Markdown; empty where none of them has an entry."""
    from vitinit.analysis.pages.render import render

    by_name = {study.name: study for study in studies}
    plans = [(study, plan) for study in by_name.values() if (plan := looks.read(study.folders[0] / study.name))]
    tables = {}
    for tier, (title, name) in SETTINGS.items():
        entries = [ranked(study, plan.taken[-1]) for study, plan in plans if plan.tier == tier and plan.taken]
        if name in by_name:
            entries += catalogue(by_name[name])
        tables[title] = sorted(entries, key=lambda entry: -entry.low)
    return render("board.md.j2", tables=tables) if any(tables.values()) else ""


def at_look(comparison: looks.Comparison) -> str:
    """Write the gain that a look found, with its interval."""
    return written(comparison.gain, comparison.low, comparison.high)


def _seconds(study: Study, row: str) -> float | None:
    seconds = [run.init.seconds for run in study.cells.get((study.columns[0], row), ())]
    return median_high(seconds) if seconds else None
