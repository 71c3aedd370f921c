"""Numbers of the analysis of the committed studies: `python -m tests.golden.analysis` compares, `--write` makes anew.

- `analysis/tables.json`: every number of every table of every study, by its meaning: study, table, row and column.
- `analysis/curves.json`: what line charts show: study, figure, panel and line, over x.
- `analysis/small/`, `analysis/standard/`: their tables as LaTeX and, with gains and all notes, as Markdown.

A file of numbers has a line for each row, and numbers that differ in the last digits are equal: those depend on the
processor. Only `tables_now` and `curves_now` know how the analysis lays out what it computes today.
"""

from __future__ import annotations

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

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.frame import load_all
from vitinit.analysis.tables.__main__ import main as tables

REFERENCE = Path(__file__).parents[2] / "results/reference"
GOLDEN = Path(__file__).with_name("analysis")
SHOWN = ("small", "standard")
"""The studies whose tables are kept as files."""
PROBES = ["nonlocality", "nonlocality_reference", "attention_entropy", "effective_receptive_field", "impulse_mass"]
PROBED = (*SHOWN, "convit-anatomy", "long-range-small", "segmentation-small")
"""Probes that have lines for each layer, and the studies of which they are kept."""
NUMBERS = ("n", "mean", "std", "published", "published_difference", "switch")
INTERVALS = ["low", "high", "pairs", "difference", "difference_low", "difference_high"]
"""Further fields of all tables."""
TESTS = ["p", "check", "detectable"]
"""Fields of the comparisons that a grid names."""
PRECISION = {"tables.json": 1e-8, "curves.json": 6e-5}
"""By file: how far, relatively, a number may be from that of another processor, or of one with five digits."""

Numbers = dict[str, dict[str, Any]]
"""By study, table or figure, and row, on one line with ` | ` between them: by column, or by what is listed over x."""


def written(folder: Path, *options: str) -> None:
    """Write tables of all studies, or of those that the options name, each to a folder of its own."""
    with redirect_stdout(StringIO()):
        assert tables(["--results", str(REFERENCE), "--out", str(folder), *options]) == 0


def tables_now() -> Numbers:
    """Return the numbers of the CSV files of all tables, in their order; of tuning studies the main tables."""
    found: Numbers = {}
    with tempfile.TemporaryDirectory() as name:
        for metric in ("last", "best"):
            written(Path(name, metric), "--format", "csv", "--metric", metric)
        for path in sorted(Path(name).glob("*/*/*.csv")):
            study, table = path.parent.name, path.stem.removeprefix(path.parent.name).removeprefix("_")
            if table and (metric_of(path) == "best" or study.endswith("-tuning")):
                continue
            for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
                more = {"contrasts": INTERVALS + TESTS}.get(table, INTERVALS)
                fields = [*NUMBERS, *more]
                cell: dict[str, Any] = {field: float(line[field]) for field in fields if line[field]}
                cell |= {field: line[field] for field in ("baseline", "published_paper") if line[field]}
                key = f"{study} | {table or metric_of(path)} | {line['row']}"
                if cell:
                    found.setdefault(key, {})[line["column"]] = cell
    return found


def metric_of(path: Path) -> str:
    return path.parents[1].name


def curves_now() -> Numbers:
    """Scores over epochs and probes from the frames that figures draw; what lies over another axis, from figures."""
    found: Numbers = {}
    for study in load_all([REFERENCE]):
        probes = study.probes[study.probes["quantity"].isin(PROBES)] if study.name in PROBED else study.probes[:0]
        gates = study.probes[study.probes["quantity"] == "gating"]
        gates = gates[gates["seed"] == gates.groupby(["column", "row"])["seed"].transform("min")]
        by_layer = ["column", "row", "run_id", "quantity", "epoch", "layer"]
        tidy = [
            (study.epochs.assign(figure="accuracy"), ["figure", "column", "row"], "epoch", "score"),
            (
                probes.groupby(by_layer, as_index=False, sort=False)["value"].mean(),
                ["quantity", "column", "row", "layer"],
                "epoch",
                "value",
            ),
            (gates, ["quantity", "column", "row", "layer", "head"], "epoch", "value"),
        ]
        for file, grid in CURVES.get("sample_efficiency").figures(study).items():
            tidy.append((grid.data.assign(figure=file), ["figure", "column", "row"], "x", "value"))
        for data, by, x, y in tidy:
            for key, line in data.groupby(by, sort=False):
                stats = line.groupby(x)[y].agg(["mean", "std", "count"])
                numbers = {"x": stats.index, "mean": stats["mean"], "std": stats["std"], "n": stats["count"]}
                found[" | ".join(map(str, (study.name, *key)))] = {
                    field: [None if math.isnan(value) else float(value) for value in values]
                    for field, values in numbers.items()
                }
    return found


def plain(value: Any, digits: int) -> Any:
    """So many significant digits, and whole numbers without a point."""
    if isinstance(value, dict):
        return {key: plain(each, digits) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each, digits) for each in value]
    if isinstance(value, float):
        value = float(f"{value:.{digits}g}")
        return int(value) if value.is_integer() else value
    return value


def numbers_now() -> dict[str, Numbers]:
    """The content of each file of numbers."""
    return {"tables.json": tables_now(), "curves.json": curves_now()}


def to_json(numbers: Numbers) -> str:
    """A line for each row."""
    lines = (
        f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for key, value in numbers.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differences(golden: Any, now: Any, precision: float, where: str = "") -> Iterator[str]:
    """A line for each number that is another one, missing or new."""
    if isinstance(golden, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*golden, *now]):
            yield from differences(golden.get(key), now.get(key), precision, f"{where} | {key}")
    elif isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        for place, (before, after) in enumerate(zip(golden, now, strict=True)):
            yield from differences(before, after, precision, f"{where} [{place}]")
    elif isinstance(golden, int | float) and isinstance(now, int | float):
        if not math.isclose(golden, now, rel_tol=precision, abs_tol=1e-12):
            yield f"{where}: {golden}, now {now}"
    elif golden != now:
        yield f"{where}: {golden}, now {now}"


def files_now() -> dict[str, str]:
    """Tables as they are printed in articles and read on the web, by their path."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for study in SHOWN:
            written(Path(name, study), "--study", study, "--format", "latex")
            written(Path(name, study), "--study", study, "--format", "markdown", "--gain", "--all")
        for path in sorted(Path(name).rglob("*.*")):
            found[str(path.relative_to(name))] = path.read_text(encoding="utf-8")
    return found


def main() -> None:
    """Compare, or make anew."""
    write = "--write" in sys.argv[1:]
    found = []
    for name, numbers in numbers_now().items():
        if write:
            (GOLDEN / name).write_text(to_json(plain(numbers, 10 if name == "tables.json" else 5)), encoding="utf-8")
        golden = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
        found += differences(golden, numbers, PRECISION[name], name)
    for name, text in files_now().items():
        path = GOLDEN / name
        if write:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        found += [f"{name} is another text"] if path.read_text(encoding="utf-8") != text else []
    print("\n".join(found) or "equal")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
