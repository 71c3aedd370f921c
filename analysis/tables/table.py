"""A table: its numbers, its texts, and what stands above and below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import Study
from vitinit.analysis.gains import Contrast
from vitinit.analysis.published import Published
from vitinit.analysis.tables.shared import Key
from vitinit.analysis.text import count, interval_text, number, one_line, p_written, signed

if TYPE_CHECKING:
    import pandas as pd

    from vitinit.analysis.stats import Interval, Paired, Sample

DAGGER = "†"
NOTHING = "–"
"""In place of our number."""
NUMBERS = (
    *("row", "column", "n", "mean", "std", "low", "high", "best"),
    *("baseline", "pairs", "difference", "difference_low", "difference_high", "p", "p_holm"),
    *("published", "published_spread", "published_n", "published_paper", "published_table", "published_provenance"),
    *("published_difference", "switch", "pooled_low", "pooled_high", "pooled_p_holm", "detectable"),
)
"""Columns of a table's CSV."""


@dataclass(frozen=True)
class Asked:
    """Input of a table."""

    study: Study
    """With a finished run."""
    name: str
    """The table's own."""
    metric: str = "last"
    """`last` or `best` epoch."""
    baseline: str | None = None
    """The row that differences are to; None: each row's own base (see `own_bases`)."""
    rows: Sequence[str] = ()
    """The study's rows that are shown, in this order; empty: all."""
    gain: bool = False
    """True if differences are shown in tables that can do without."""


@dataclass(frozen=True)
class TableCell:
    """Our numbers and the paper's for one row and column; None where there is none."""

    ours: Sample | None = None
    against: Paired | None = None
    """Ours minus that of its base, or of the one baseline."""
    test: Contrast | None = None
    """Tests of `against`, where the grid names the comparison."""
    best: bool = False
    """The best of its column, or no different from it: the interval of their difference contains 0."""
    published: Published | None = None
    """In the setting of ours."""
    published_difference: float | None = None
    """In the same published table."""
    signed: bool = False
    """Ours is a difference itself."""
    switch: bool | None = None
    """On or off, in place of any number."""

    @property
    def excludes_published(self) -> bool:
        """The interval of our mean does not contain the published number."""
        interval = self.ours.interval if self.ours else None
        return interval is not None and self.published is not None and self.published.value not in interval


@dataclass(frozen=True)
class Table:
    """Everything that any format shows."""

    name: str
    study: Study
    caption: str
    texts: pd.DataFrame
    """By row label; by column label and what a part of the column holds, empty where it has one part."""
    bold: frozenset[tuple[str, tuple[str, str]]]
    """Rows and columns of `texts`."""
    numbers: pd.DataFrame
    """One line per cell, with the columns `NUMBERS`."""
    notes: list[str] = field(default_factory=list)

    @property
    def heads(self) -> list[tuple[str, str]]:
        """Columns of `texts`: label, and what a part of the column holds."""
        return [(str(head[0]), str(head[1])) for head in self.texts.columns]


def compose(
    asked: Asked,
    cells: Mapping[Key, TableCell],
    subject: str,
    notes: Sequence[str],
    *,
    baselines: Mapping[str, str] | None = None,
    gain: str = "",
    digits: int = 1,
    shown: Mapping[Key, TableCell] | None = None,
    explained: Sequence[str] = (),
) -> Table:
    """Return the table of cells; rows and columns have the order in which they come.

    Args:
        asked: The input of the table.
        cells: By row and column label. A column without any number is left out.
        subject: Beginning of the caption: what the numbers are.
        notes: Lines below the table.
        baselines: The row that a row is compared with.
        gain: What differences are over, for a table that always shows them.
        digits: Decimals.
        shown: Cells in another layout for all formats but CSV; a column without a label has the names of its parts
            alone. Default: `cells`.
        explained: Further sentences of the caption.
    """
    import pandas as pd

    baselines, cells = baselines or {}, _chosen(cells, asked.rows)
    bases = {baselines[row] for (row, _), cell in cells.items() if cell.against and row in baselines}
    over = gain or f"over {asked.baseline or (bases.pop() if len(bases) == 1 else 'its own base')}"
    gains = bool(gain or asked.gain) and any(cell.against for cell in cells.values())
    sizes = Counter(cell.ours.n for cell in cells.values() if cell.ours)
    usual = max(sizes, key=lambda n: (sizes[n], n), default=0)
    texts, bold = _texts(asked.study, _chosen(shown, asked.rows) if shown else cells, usual, gains, digits)
    spread = " standard deviation" if any(cell.ours and cell.ours.std is not None for cell in cells.values()) else ""
    lines = [f"{subject}, mean{' and' * bool(spread)}{spread} over {count(usual, 'seed')}" if usual else subject]
    if len(sizes) > 1:
        lines[0] += " (other numbers of seeds in brackets)"
    if bold:
        lines.append("Bold: best, or its paired difference from the best has a 95 % interval that contains 0")
    if gains:
        lines.append(f"Gain: by seed, {over}, with its 95 % interval")
    lines += explained
    if papers := dict.fromkeys(cell.published.source.partition(" (")[0] for cell in cells.values() if cell.published):
        lines.append(f"Paper: {'; '.join(papers)}")
    if any(cell.excludes_published for cell in cells.values()):
        lines.append(f"{DAGGER}: the paper's number is outside the 95 % interval of our mean")
    counted = _counted(cells, usual)
    numbers = [_numbers(key, cell, baselines.get(key[0])) for key, cell in cells.items()]
    return Table(
        asked.name,
        asked.study,
        " ".join(f"{line.rstrip('.')}." for line in lines),
        texts,
        bold,
        pd.DataFrame(numbers).reindex(columns=NUMBERS),
        [*notes, *counted],
    )


def _chosen(cells: Mapping[Key, TableCell], rows: Sequence[str]) -> Mapping[Key, TableCell]:
    """Return the cells of these rows, in this order; all where none is among them."""
    columns, known = dict.fromkeys(column for _, column in cells), {row for row, _ in cells}
    some = {(row, column): cells[row, column] for row in rows if row in known for column in columns}
    return some or cells


def _counted(cells: Mapping[Key, TableCell], usual: int) -> list[str]:
    """Return notes on cells and differences of fewer seeds."""
    other = [
        f"{row} on {column} ({its.ours.n})" for (row, column), its in cells.items() if its.ours and its.ours.n != usual
    ]
    short = [
        f"{row} on {column} ({cell.against.n})"
        for (row, column), cell in cells.items()
        if cell.ours and cell.against and cell.against.n < cell.ours.n
    ]
    lines = [f"Seeds: {usual}; other: {', '.join(other)}."] if other else []
    return lines + ([f"Differences over fewer seeds than n: {', '.join(short)}."] if short else [])


def _texts(
    study: Study, cells: Mapping[Key, TableCell], usual: int, gains: bool, digits: int
) -> tuple[pd.DataFrame, frozenset[tuple[str, tuple[str, str]]]]:
    """Return texts and bold ones: a column has our numbers, then parts of which any row has a number."""
    import pandas as pd

    def published(cell: TableCell) -> str:
        if cell.signed and cell.published_difference is not None:
            return signed(cell.published_difference, digits)
        return f"{cell.published.value:.{digits}f}" if cell.published else ""

    def gain(cell: TableCell) -> str:
        if cell.against is None:
            return ""
        between = f" {interval_text(cell.against.interval, digits)}" if cell.against.interval else ""
        fewer = f" (n={cell.against.n})" if cell.ours and cell.against.n != cell.ours.n else ""
        return f"{signed(cell.against.mean, digits)}{between}{fewer}"

    def papers_gain(cell: TableCell) -> str:
        return "" if cell.signed or cell.published_difference is None else signed(cell.published_difference, digits)

    def mean(cell: TableCell) -> str:
        if cell.switch is not None:
            return "✓" if cell.switch else "✗"
        if cell.ours is None:
            return NOTHING
        text = (signed if cell.signed else number)(cell.ours.mean, digits)
        spread = "" if cell.ours.std is None else f" ± {cell.ours.std:.{digits}f}"
        other = "" if cell.ours.n == usual else f" (n={cell.ours.n})"
        return f"{text}{spread}{DAGGER if cell.excludes_published else ''}{other}"

    def pooled(cell: TableCell) -> str:
        return interval_text(cell.test.pooled, digits) if cell.test and cell.test.pooled else ""

    def pooled_p(cell: TableCell) -> str:
        return p_written(cell.test.pooled_p) if cell.test and cell.test.pooled_p is not None else ""

    parts: dict[str, Callable[[TableCell], str]] = {"paper": published}
    if gains:
        parts |= {
            "gain [95 %]": gain,
            "paper's gain": papers_gain,
            "p": lambda cell: p_written(cell.test.p) if cell.test and cell.test.could_show else "",
            "pooled [95 %]": pooled,
            "pooled p": pooled_p,
        }
    found: dict[tuple[str, str], dict[str, str]] = {}
    bold = set()
    for label in dict.fromkeys(column for _, column in cells):
        its = {row: cell for (row, column), cell in cells.items() if column == label}
        more = {head: {row: text(cell) for row, cell in its.items()} for head, text in parts.items()}
        more = {head: texts for head, texts in more.items() if any(texts.values())}
        ours = {row: mean(cell) for row, cell in its.items()}
        if more or set(ours.values()) != {NOTHING}:
            first = "ours" if "paper" in more else study.metrics.get(label, study.measured) if more else ""
            found |= {(label, head): texts for head, texts in {first: ours, **more}.items()}
            bold |= {(row, (label, first)) for row, cell in its.items() if cell.best}
    rows = list(dict.fromkeys(row for row, _ in cells))
    return pd.DataFrame(found, index=rows, dtype=object).fillna(""), frozenset(bold)


def _numbers(key: Key, cell: TableCell, base: str | None) -> dict[str, Any]:
    """Return every number of a cell, by its name in `NUMBERS`."""
    found: dict[str, Any] = {"row": one_line(key[0]), "column": one_line(key[1])}
    if ours := cell.ours:
        found |= {"n": ours.n, "mean": ours.mean, "std": ours.std, "best": int(cell.best)} | _ends("", ours.interval)
    if pair := cell.against:
        found |= {"baseline": base and one_line(base), "pairs": pair.n, "difference": pair.mean}
        found |= _ends("difference_", pair.interval)
    if test := cell.test:
        found |= {"p": test.against.p, "p_holm": test.p, "pooled_p_holm": test.pooled_p, "detectable": test.detectable}
        found |= _ends("pooled_", test.pooled)
    if paper := cell.published:
        found |= {"published": paper.value, "published_spread": paper.cell.spread, "published_n": paper.cell.n}
        found |= {"published_paper": paper.publication.paper, "published_table": paper.table}
        found["published_provenance"] = paper.cell.provenance
    found["published_difference"] = cell.published_difference
    found["switch"] = None if cell.switch is None else int(cell.switch)
    return {name: number for name, number in found.items() if number is not None}


def _ends(prefix: str, interval: Interval | None) -> dict[str, float]:
    return {f"{prefix}low": interval.low, f"{prefix}high": interval.high} if interval else {}
