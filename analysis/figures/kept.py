"""Runs with the attention maps and Gram matrices that they have kept (--keep-maps)."""

from collections import defaultdict
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from vitinit.analysis.figures.style import said
from vitinit.analysis.frame import Study
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import AttentionMaps, read_maps


class Kept(NamedTuple):
    """A run and the maps that it has kept."""

    record: RunRecord
    maps: AttentionMaps


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
                by_seed[column][record.spec.seed].setdefault(row, Kept(record, maps))
    return {column: max((rows for _, rows in sorted(seeds.items())), key=len) for column, seeds in by_seed.items()}


def source(column: str, runs: dict[str, Kept]) -> str:
    """Return what maps are of, for a note: dataset, seed, number of images."""
    first = next(iter(runs.values()))
    where = f"{column}, seed {first.record.spec.seed}, mean over {first.maps.images} test images"
    return "; ".join(filter(None, [where, said(run.record for run in runs.values())]))
