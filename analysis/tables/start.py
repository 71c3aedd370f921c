"""State at the start of training: spectra of the attention weights, entropy and distance of attention, by layer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING

from vitinit.analysis.frame import Study
from vitinit.analysis.tables.registry import TABLES, Asked
from vitinit.analysis.tables.shared import Table, TableCell
from vitinit.initializers.report import LayerStart

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
    """The table: of each row the first layer, and the others together; see `NOTES` for what is in it."""
    from vitinit.analysis.stats import sample

    study = asked.study
    by_run = defaultdict[tuple[str, str, bool, str, str], list[float]](list)
    for place, row, run_id, layer, quantity, value in starts(study).itertuples(index=False):
        by_run[place, row, layer > 1, quantity, run_id].append(value)
    values = defaultdict[tuple[str, str, bool, str], list[float]](list)
    for (place, row, later, quantity, _), layers in by_run.items():
        values[place, row, later, quantity].append(fmean(layers))
    several = len({place for place, *_ in values}) > 1
    cells, lines = {}, []
    for place, row, later in product(study.columns, study.rows, (False, True)):
        if not any(key[:3] == (place, row, later) for key in values):
            continue
        lines.append(f"{row}{f', {place}' if several else ''}: {'later' if later else 'layer 1'}")
        for quantity in QUANTITIES:
            cells[lines[-1], quantity] = TableCell(sample(sorted(values.get((place, row, later, quantity), ()))))
    caption = f"What training starts from, study {study.name}"
    shows = "Mean over heads of norm, rank and log condition number of W_q^T W_k and W_proj W_v; entropy, distance"
    return Table(asked.name, study, caption, lines, list(QUANTITIES), cells, notes=list(NOTES), shows=shows, digits=2)
