"""Attention on the target, and cost of the initialisation."""

from collections.abc import Callable
from statistics import fmean

from vitinit.analysis.frame import Study
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose
from vitinit.benchmark.records.record import RunRecord

MEASURES: dict[str, Callable[[RunRecord], float | None]] = {
    "on target, pseudo-input (%)": lambda run: 100 * attention.mass if (attention := run.init.pseudo_input) else None,
    "on target, images (%)": lambda run: 100 * attention.mass if (attention := run.init.real_images) else None,
    "norm of W_q": lambda run: fmean(norms) if run.init.norms and (norms := run.init.norms[0].query) else None,
    "initialisation (ms)": lambda run: 1000 * run.init.seconds,
}
NOTES = (
    "On target: attention mass that a query of the first layer puts on its target token, mean over heads and queries, "
    "on the pseudo-input that the method solved on (biases left out) and on real images. None without a target.",
    "Norm of W_q: Frobenius, mean over the heads of the first layer. Initialisation: base and method together; of a "
    "solution that an earlier run had computed, the time that it took then.",
)


def aimed(study: Study) -> list[str]:
    """Return the columns of datasets where a method of a finished run has attention targets."""
    aims = {study.column[run.run_id] for run in study.contents.done.values() if run.init.pseudo_input}
    return [place for place in study.columns if place in aims]


@TABLES.add("_initialization", lambda study: bool(aimed(study)), place=7)
def initialization(asked: Asked) -> Table:
    """Return attention on the target and cost beside accuracy, for datasets where a method has a target."""
    study, cells, shown, places = asked.study, {}, {}, aimed(asked.study)
    rows = [row for row in study.rows if any((place, row) in study.cells for place in places)]
    for place in places:
        setting = f"{study.heads[1][place]}: " if len(places) > 1 else ""
        measures = {f"{study.metrics[place]} (%)": lambda run: run.score, **MEASURES}
        for row in rows:
            for name, measure in measures.items():
                measured = map(measure, study.cells.get((place, row), ()))
                values = sorted(value for value in measured if value is not None)
                cells[row, f"{place}: {name}"] = shown[row, setting + name] = TableCell(values)
    what = f"Attention of the first layer on its target, norm and cost of the initialisation, and {study.measured}"
    return compose(asked, cells, f"{what} after the last epoch", NOTES, digits=2, shown=shown)
