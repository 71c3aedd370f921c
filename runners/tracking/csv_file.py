"""Tracker `csv`: a file a run, with the columns epoch, name and value; its config beside it."""

from __future__ import annotations

import csv
import io
import json
from typing import ClassVar, Literal

from vitinit.benchmark.files.atomic import write_atomically
from vitinit.runners.tracking.tracker import TrackedRun, Tracker

COLUMNS = ("epoch", "name", "value")


class CsvFile(Tracker):
    """`RUN_ID.csv` and `RUN_ID.json`."""

    name: ClassVar[str] = "csv"

    def __init__(self, run: TrackedRun) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(run.folder / f"{run.run_id}.json", json.dumps(run.config, indent=1).encode())
        self.path = run.folder / f"{run.run_id}.csv"
        held: list[list[str]] = []
        if run.first > 1 and self.path.exists():
            with self.path.open(newline="") as file:
                held = [row for row in csv.reader(file) if len(row) == len(COLUMNS) and row[0].isdecimal()]
        text = io.StringIO()
        csv.writer(text).writerows([COLUMNS, *(row for row in held if int(row[0]) < run.first)])
        write_atomically(self.path, text.getvalue().encode())

    def log(self, epoch: int, values: dict[str, float]) -> None:
        """Append a line for each value."""
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerows((epoch, name, value) for name, value in values.items())

    def close(self, status: Literal["done", "failed", "stopped"]) -> None:
        """Do nothing: the file is whole after every epoch."""
