"""Synthetic records with probes that the schema has no field for."""

from __future__ import annotations

from pathlib import Path

from synthetic_records import done, with_probes, write

from vitinit.benchmark.records.record import RunRecord


def _with_more(record: RunRecord) -> RunRecord:
    depth, heads = record.spec.model.depth, record.spec.model.heads
    by_head = [[float(head + layer) for head in range(heads)] for layer in range(depth)]
    found = {"<b>by head</b>": by_head, "by_layer": [float(layer) for layer in range(depth)]}
    probes = [probe.model_copy(update={"more": found}) for probe in with_probes(record).probes]
    return record.model_copy(update={"probes": probes})


def more_probes(root: Path) -> None:
    write(root, *(_with_more(done(row, seed=seed)) for row in ("Kaiming uniform", "Mimetic") for seed in range(2)))


STUDIES = {"more_probes": more_probes}
