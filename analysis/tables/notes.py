"""Captions of tables, and notes that several tables share, computed from records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import Study
from vitinit.analysis.tables.shared import (
    PLAIN,
    Table,
    TableLayout,
    differing,
    usual_seeds,
)
from vitinit.analysis.text import count

if TYPE_CHECKING:
    import pandas as pd

SPLITS = {"test": "test {}", "val": "{} on validation images, taken from the training split,"}
METRICS = {
    "last": "{} (%) after the last epoch",
    "best": "best {} (%) of all evaluated epochs (it selects on what it measures)",
    "each": "{} (%) after the epoch of the column",
}


def quantity(study: Study, metric: str) -> str:
    """Return the measured quantity in one phrase, such as test top-1 (%) after the last epoch."""
    splits, (first, *rest) = set(study.runs["split"]), study.measured.split(" or ")
    for other in rest:
        columns = [column for column, its in study.metrics.items() if its == other]
        first += f" (on {', '.join(columns)}: {other})"
    both = "test {} (in columns named validation, on images taken from the training split)"
    return METRICS[metric].format((SPLITS[splits.pop()] if len(splits) == 1 else both).format(first))


def caption(table: Table, look: TableLayout = PLAIN) -> str:
    """Return the caption of a table, the same in every format: title, quantity, n, meaning of bold, sources."""
    cells = table.cells.values()
    n = usual_seeds(table) or 0
    spread = ", mean ± standard deviation" if any(cell.ours and cell.ours.std is not None for cell in cells) else ""
    other = any(cell.ours and cell.ours.n != n for cell in cells)
    lines = [table.caption]
    lines.append(f"{table.shows}{spread}, n = {count(n, 'seed')}{' unless given' if other else ''}".lstrip(", "))
    if any(cell.best for cell in cells):
        lines.append("Bold: best, or its paired difference from the best has a 95 % interval that contains 0")
    if gains(table, look):
        bases = set(table.baselines.values())
        over = table.gain or f"over {table.baseline or (bases.pop() if len(bases) == 1 else 'the own base')}"
        lines.append(f"Gain: by seed, {over}, with its 95 % interval")
        holm = f"Holm over {count(table.comparisons, 'comparison')}"
        tested = any(cell.telling_p is not None for cell in cells)
        if tested:
            lines.append(f"p: sign-flip test, {holm}")
        if any(cell.pooled for cell in cells):
            lines.append(
                f"Pooled: t interval and test with the noise of all rows, {'Holm likewise' if tested else holm}"
            )
    if papers := dict.fromkeys(cell.published.source.partition(" (")[0] for cell in cells if cell.published):
        lines.append(f"Paper: {'; '.join(papers)}")
    if any(cell.excludes_published for cell in cells):
        lines.append("†: the paper's number is outside the 95 % interval of our mean")
    return " ".join(f"{line.rstrip('.')}." for line in lines)


def gains(table: Table, look: TableLayout) -> bool:
    """Return True if the table shows columns of differences."""
    compared = any(cell.against for cell in table.cells.values())
    return compared and bool(table.gain or look.gain or look.whole)


def compared_with(baselines: dict[str, str]) -> str:
    """Return the most frequent row of comparison, then each other one with the rows that it is for."""
    rows: dict[str, list[str]] = defaultdict(list)
    for row, other in baselines.items():
        rows[other].append(row)
    most = max(rows, key=lambda other: len(rows[other]))
    return "; ".join([most, *(f"of {', '.join(its)}: {other}" for other, its in rows.items() if other != most)])


def compared_rows(table: Table) -> list[tuple[str, str]]:
    """Return each row that has a difference, with its row of comparison."""
    return [
        (row, table.baselines[row])
        for row in dict.fromkeys(row for (row, _), cell in table.cells.items() if cell.against)
    ]


def not_initialisation_alone(study: Study, compared: Iterable[tuple[str, str]], values: bool = True) -> list[str]:
    """Return a note on rows whose model or recipe also differs from their row of comparison."""
    found: dict[str, list[str]] = defaultdict(list)
    for row, other in compared:
        if fields := differing(study, row, other):
            texts = [f"{name} {ours} (not {theirs})" if values else name for name, (ours, theirs) in fields.items()]
            found[", ".join(texts)].append(row)
    rows = "; ".join(f"{', '.join(its)} in {text}" for text, its in found.items())
    return [f"More than the initialisation differs from the row compared with: {rows}."] if found else []


def seeds(table: Table) -> str:
    """Return the number of seeds of most cells, and the cells that have another number."""
    n = {key: cell.ours.n for key, cell in table.cells.items() if cell.ours}
    usual = usual_seeds(table) or 0
    other = [f"{row} on {column} ({value})" for (row, column), value in n.items() if value != usual]
    return f"n = {count(usual, 'seed')}{'; other: ' * bool(other)}{', '.join(other)}."


def over_fewer_seeds(table: Table) -> list[str]:
    """Return a note on differences whose row of comparison lacks some seeds."""
    short = [
        f"{row} on {column} ({cell.against.n})"
        for (row, column), cell in table.cells.items()
        if cell.ours and cell.against and cell.against.n < cell.ours.n
    ]
    return [f"Differences over fewer seeds than n: {', '.join(short)}."] if short else []


def without_record(study: Study) -> list[str]:
    """Return the rows of the grid without any record."""
    return [row for row in study.order if row not in study.rows]


def settings(runs: pd.DataFrame) -> list[str]:
    """Return model and epochs of the columns. Equal columns share a sentence; rows that differ are named."""
    sentences: dict[str, list[str]] = defaultdict(list)
    warnings = []
    for column, group in runs.groupby("column", sort=False):
        rows: dict[str, list[str]] = defaultdict(list)
        for _, run in group.drop_duplicates(["row", "model", "epochs", "lr"]).iterrows():
            rows[f"{run['model']}, {count(run['epochs'], 'epoch')}{_own_rate(group, run)}"].append(run["row"])
        (first, _), *rest = rows.items()
        images = " or ".join(f"{images:,}" for images in sorted(set(group["train_images"])))
        sentence = "; ".join([first, *(f"{', '.join(names)}: {text}" for text, names in rest)])
        sentences[sentence].append(f"{column} ({images} training images)")
        if (group.groupby("seed")["checksum"].nunique() > 1).any():
            warnings.append(f"Not comparable: the runs on {column} read different data (checksums differ).")
    return [f"{', '.join(columns)}: {sentence}." for sentence, columns in sentences.items()] + warnings


def _own_rate(group: pd.DataFrame, run: pd.Series[Any]) -> str:
    """Return the learning rate if rows of a column have different ones."""
    return f", learning rate {run['lr']:g}" if group["lr"].nunique() > 1 else ""


def mixed_code(table: Table) -> list[str]:
    """Return notes on initialisers whose source file changed between runs of the table, with their rows."""
    sources: dict[str, set[str]] = defaultdict(set)
    rows: dict[str, set[str]] = defaultdict(set)
    for run in table.study.contents.done.values():
        if run.row in table.rows:
            for name, source in run.sources.items():
                sources[name].add(source)
                rows[name].add(run.row)
    return [
        f"Mixed code of {name}: rows {', '.join(row for row in table.rows if row in rows[name])} hold runs of "
        f"{len(found)} versions of its file."
        for name, found in sorted(sources.items())
        if len(found) > 1
    ]
