"""Numbers of the tables of the committed studies: `python -m tests.golden.analysis` compares, `--write` makes anew.

`analysis/tables.json` has every number of every table of every study by its meaning, a line for each row. Numbers that
differ in the last digits are equal: those depend on the processor. `analysis.pages --check` has texts and pictures.
"""

import csv
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from vitinit.analysis.tables.__main__ import main as tables

REFERENCE = Path(__file__).parents[2] / "results/reference"
GOLDEN = Path(__file__).with_name("analysis") / "tables.json"
NUMBERS = ("n", "mean", "std", "published", "published_difference", "switch")
INTERVALS = ["low", "high", "pairs", "difference", "difference_low", "difference_high"]
"""Further fields of all tables."""
TESTS = ["p", "check", "detectable"]
"""Fields of the comparisons that a grid names."""
PRECISION = 1e-8
"""Relative difference of a number from that of another processor."""

Numbers = dict[str, dict[str, Any]]
"""By study, table or figure, and row, on one line with ` | ` between them: by column."""


def tables_now() -> Numbers:
    """Return the numbers of the CSV files of all tables, in their order; of tuning studies the main tables."""
    found: Numbers = {}
    with tempfile.TemporaryDirectory() as name:
        for metric in ("last", "best"):
            options = ["--results", str(REFERENCE), "--out", f"{name}/{metric}", "--format", "csv", "--metric", metric]
            with redirect_stdout(StringIO()):
                assert tables(options) == 0
        for path in sorted(Path(name).glob("*/*/*.csv")):
            metric = path.parents[1].name
            study, table = path.parent.name, path.stem.removeprefix(path.parent.name).removeprefix("_")
            if table and (metric == "best" or study.endswith("-tuning")):
                continue
            for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
                more = {"contrasts": INTERVALS + TESTS}.get(table, INTERVALS)
                fields = [*NUMBERS, *more]
                cell: dict[str, Any] = {field: float(line[field]) for field in fields if line[field]}
                cell |= {field: line[field] for field in ("baseline", "published_paper") if line[field]}
                key = f"{study} | {table or metric} | {line['row']}"
                if cell:
                    found.setdefault(key, {})[line["column"]] = cell
    return found


def differences(golden: Any, now: Any, where: str = "") -> Iterator[str]:
    """A line for each number that is another one, missing or new."""
    if isinstance(golden, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*golden, *now]):
            yield from differences(golden.get(key), now.get(key), f"{where} | {key}")
    elif isinstance(golden, int | float) and isinstance(now, int | float):
        if not math.isclose(golden, now, rel_tol=PRECISION, abs_tol=1e-12):
            yield f"{where}: {golden}, now {now}"
    elif golden != now:
        yield f"{where}: {golden}, now {now}"


def main() -> None:
    """Compare, or make anew."""
    now = tables_now()
    if "--write" in sys.argv[1:]:
        lines = (
            f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(cells, ensure_ascii=False, separators=(',', ':'))}"
            for key, cells in now.items()
        )
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    found = [*differences(json.loads(GOLDEN.read_text(encoding="utf-8")), now)]
    print("\n".join(found) or "equal")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
