"""State at the start of training, by layer; attention on the target and cost of the initialisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.tables.registry import TABLES
from vitinit.analysis.tables.table import Asked, Table, TableCell, compose
from vitinit.benchmark.records.record import RunRecord
from vitinit.initializers.report import Fidelity, LayerStart

if TYPE_CHECKING:
    import pandas as pd

HeadValues = Callable[[LayerStart], "Sequence[float | None] | None"]
"""One value per head; None where there is none."""


def _log10(values: Sequence[float | None]) -> list[float | None]:
    return [math.log10(value) if value else None for value in values]


QUANTITIES: dict[str, HeadValues] = {
    "QK norm": lambda layer: layer.query_key.norm,
    "QK rank": lambda layer: layer.query_key.rank,
    "QK cond.": lambda layer: _log10(layer.query_key.condition),
    "VO norm": lambda layer: layer.value_path.norm,
    "VO rank": lambda layer: layer.value_path.rank,
    "VO cond.": lambda layer: _log10(layer.value_path.condition),
    "entropy": lambda layer: layer.entropy,
    "distance": lambda layer: layer.distance,
}
"""By what tables and figures call them."""
NOTES = (
    "QK is W_q^T W_k of a head, VO is W_proj W_v: Frobenius norm, rank, and log10 of the condition number (the largest "
    "singular value over the smallest above rounding; a zero matrix has none).",
    "Of attention between patch tokens, on the same training images in all runs of a seed: entropy in nats, and mean "
    "distance from query to key in tokens.",
    "Mean over heads; later: over all layers behind the first. ± sample standard deviation over n seeds. The figure "
    "start has each layer.",
)


def has_start(study: Study) -> bool:
    """Return True if a finished run has recorded its start."""
    return any(record.init.start for record in study.contents.done.values())


def starts(study: Study) -> pd.DataFrame:
    """One row per finished run, layer (from 1) and quantity, where it has a value: its mean over the heads."""
    import pandas as pd

    found = []
    for (place, row), runs in study.cells.items():
        for run in runs:
            for number, layer in enumerate(run.init.start, 1):
                for quantity, of in QUANTITIES.items():
                    values = [value for value in of(layer) or () if value is not None]
                    if values:
                        found.append((place, row, run.run_id, number, quantity, fmean(values)))
    return pd.DataFrame(found, columns=["column", "row", "run_id", "layer", "quantity", "value"])


@TABLES.add("_start", has_start, place=8)
def start(asked: Asked) -> Table:
    """Attention at the start of training: of each row the first layer, and the mean of the others."""
    from vitinit.analysis.stats import sample

    study, found = asked.study, starts(asked.study)
    found["layers"] = found["layer"].gt(1).map({False: "layer 1", True: "later"})
    by_run = found.groupby(["column", "row", "layers", "quantity", "run_id"])["value"].mean()
    values = {key: list(its) for key, its in by_run.groupby(["column", "row", "layers", "quantity"])}
    several = found["column"].nunique() > 1
    cells = {}
    for place, row, layers in product(study.columns, study.rows, ("layer 1", "later")):
        if any(key[:3] == (place, row, layers) for key in values):
            for quantity in QUANTITIES:
                measured = sorted(values.get((place, row, layers, quantity), ()))
                cells[f"{row}{f', {place}' if several else ''}: {layers}", quantity] = TableCell(sample(measured))
    what = (
        "Attention at the start of training: norm, rank and log10 condition number of W_q^T W_k (QK) and of W_proj W_v"
    )
    return compose(asked, cells, f"{what} (VO), entropy and distance", NOTES, digits=2)


def aimed(study: Study) -> bool:
    """Return True if a method of a finished run has attention targets."""
    return any(record.init.pseudo_input for record in study.contents.done.values())


def _on_target(fidelity: Fidelity | None) -> float | None:
    return 100 * fidelity.mass if fidelity else None


def _norm(record: RunRecord) -> float | None:
    norms = record.init.norms[0].query if record.init.norms else []
    return fmean(norms) if norms else None


MEASURES: dict[str, Callable[[RunRecord], float | None]] = {
    "on target, pseudo-input (%)": lambda record: _on_target(record.init.pseudo_input),
    "on target, images (%)": lambda record: _on_target(record.init.real_images),
    "norm of W_q": _norm,
    "initialisation (ms)": lambda record: 1000 * record.init.seconds,
}
AIM_NOTES = (
    "On target: attention mass that a query of the first layer puts on its target token, mean over heads and queries, "
    "on the pseudo-input that the method solved on (biases left out) and on real images. None without a target.",
    "Norm of W_q: Frobenius, mean over the heads of the first layer. Initialisation: base and method together; of a "
    "solution that an earlier run had computed, the time that it took then.",
)


@TABLES.add("_initialization", aimed, place=7)
def initialization(asked: Asked) -> Table:
    """Attention on the target and cost, in columns of datasets where a method has a target, beside accuracy."""
    from vitinit.analysis.stats import sample

    study = asked.study
    places = [
        place
        for place in study.columns
        if any(run.init.pseudo_input for row in study.rows for run in study.cells.get((place, row), ()))
    ]
    rows = [row for row in study.rows if any((place, row) in study.cells for place in places)]
    cells: dict[tuple[str, str], TableCell] = {}
    for place in places:
        measures = {f"{study.metrics[place]} (%)": lambda record: record.score, **MEASURES}
        for row, (name, measure) in product(rows, measures.items()):
            measured = [measure(run) for run in study.cells.get((place, row), ())]
            values = sorted(value for value in measured if value is not None)
            cells[row, f"{place}: {name}"] = TableCell(sample(values))
    what = f"Attention of the first layer on its target, norm and cost of the initialisation, and {study.measured}"
    return compose(asked, cells, f"{what} after the last epoch", AIM_NOTES, digits=2)
