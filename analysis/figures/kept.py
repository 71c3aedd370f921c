"""Runs with the attention maps and Gram matrices that they have kept (--keep-maps)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.frame import Study
from benchmark.maps import AttentionMaps, read_maps
from benchmark.record import RunRecord

NONE = "no run with attention maps (vitinit run --keep-maps)"


@dataclass(frozen=True)
class Kept:
    """A run and the maps that it has kept."""

    record: RunRecord
    maps: AttentionMaps

    @property
    def side(self) -> int:
        """Of the token grid."""
        return self.record.spec.model.grid


def kept(study: Study) -> dict[str, dict[str, Kept]]:
    """By column and row, in the order of the table: the run of the first seed that has kept maps.

    Raises:
        VitinitError: a file of maps is damaged.
    """
    found: dict[str, dict[str, Kept]] = {}
    for column in study.columns:
        for row in study.rows:
            if run := next(_of_cell(study, row, column), None):
                found.setdefault(column, {})[row] = run
    return found


def kept_at_one_seed(study: Study) -> dict[str, dict[str, Kept]]:
    """The same, all rows of a column at one seed: the first of those at which most rows have kept maps.

    Raises:
        VitinitError: a file of maps is damaged.
    """
    found: dict[str, dict[str, Kept]] = {}
    for column in study.columns:
        for seed in sorted({record.spec.seed for record in study.contents.done.values()}):
            runs = {row: next(_of_cell(study, row, column, seed), None) for row in study.rows}
            here = {row: run for row, run in runs.items() if run}
            if len(here) > len(found.get(column, {})):
                found[column] = here
    return found


def _of_cell(study: Study, row: str, column: str, seed: int | None = None) -> Iterator[Kept]:
    """By seed."""
    cell = (r for r in study.contents.done.values() if r.row == row and study.column[r.run_id] == column)
    for record in sorted(cell, key=lambda record: record.spec.seed):
        if seed in (None, record.spec.seed):
            files = (read_maps(folder, record) for folder in study.folders)
            maps = next((maps for maps in files if maps and maps.weights == record.weights), None)
            if maps:
                yield Kept(record, maps)
