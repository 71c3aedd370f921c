"""Runs with the attention maps and Gram matrices that they have kept (--keep-maps)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from vitinit.analysis.frame import Study
from vitinit.benchmark.records.maps import AttentionMaps, read_maps
from vitinit.benchmark.records.record import RunRecord
from vitinit.benchmark.records.store import maps_folder

NONE = "no run with attention maps (vitinit run --keep-maps)"


@dataclass(frozen=True)
class Kept:
    """A run and the maps that it has kept."""

    record: RunRecord
    maps: AttentionMaps

    @property
    def side(self) -> int:
        """Side of the token grid."""
        return math.isqrt(self.maps.maps_ELHNN.shape[-1])


@lru_cache(maxsize=1)
def kept(study: Study) -> dict[str, dict[str, Kept]]:
    """By column and row, in the order of the table: the run of the first seed that has kept maps.

    Raises:
        VitinitError: a file of maps is damaged.
    """
    found: dict[str, dict[str, Kept]] = {}
    for (column, row), records in study.cells.items():
        if run := next(_with_maps(study, records), None):
            found.setdefault(column, {})[row] = run
    return found


def kept_at_one_seed(study: Study) -> dict[str, dict[str, Kept]]:
    """The same, all rows of a column at one seed: the first of those at which most rows have kept maps.

    Raises:
        VitinitError: a file of maps is damaged.
    """
    found: dict[str, dict[str, Kept]] = {}
    for seed in sorted({record.spec.seed for record in study.contents.done.values()}):
        here: dict[str, dict[str, Kept]] = {}
        for (column, row), records in study.cells.items():
            if run := next(_with_maps(study, (r for r in records if r.spec.seed == seed)), None):
                here.setdefault(column, {})[row] = run
        found |= {column: runs for column, runs in here.items() if len(runs) > len(found.get(column, {}))}
    return found


def _with_maps(study: Study, records: Iterable[RunRecord]) -> Iterator[Kept]:
    folders = [folder for folder in study.folders if maps_folder(folder, study.name).is_dir()]
    for record in records if folders else ():
        files = (read_maps(folder, record) for folder in folders)
        maps = next((maps for maps in files if maps and maps.weights == record.weights), None)
        if maps:
            yield Kept(record, maps)
