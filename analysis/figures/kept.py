"""Runs with the attention maps and Gram matrices that they have kept (--keep-maps)."""

from collections import defaultdict
from functools import lru_cache
from itertools import product

from vitinit.analysis.figures.style import said
from vitinit.analysis.frame import Study
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import AttentionMaps, read_maps

Kept = tuple[RunRecord, AttentionMaps]
"""A run, and the maps that it has kept."""


@lru_cache(maxsize=1)
def kept(study: Study) -> dict[str, dict[str, Kept]]:
    """Return the kept maps by column and row, of a column at one seed: the first of those that most rows have.

    Raises:
        VitinitError: a file of maps is damaged.
    """
    by_seed = defaultdict[str, dict[int, dict[str, Kept]]](lambda: defaultdict(dict))
    for (column, row), records in study.cells.items():
        for record, folder in product(records, study.folders):
            if (maps := read_maps(folder, record)) and maps.weights == record.weights:
                by_seed[column][record.spec.seed].setdefault(row, (record, maps))
    return {column: max((rows for _, rows in sorted(seeds.items())), key=len) for column, seeds in by_seed.items()}


def source(column: str, runs: dict[str, Kept]) -> str:
    """Return what maps are of, for a note: dataset, seed, number of images."""
    records, maps = zip(*runs.values(), strict=True)
    where = f"{column}, seed {records[0].spec.seed}, mean over {maps[0].images} test images"
    return "; ".join(filter(None, [where, said(records)]))
