"""A table: its numbers, its texts, and what stands above and below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from vitinit.analysis.comparison import MAIN, Comparison, named
from vitinit.analysis.frame import COLUMNS, Study
from vitinit.analysis.published import Published
from vitinit.analysis.rows import Key
from vitinit.analysis.stats import Estimate, Values, student
from vitinit.analysis.tables import render
from vitinit.analysis.text import number, p_written, signed
from vitinit.initializers.errors import plain

DAGGER = "†"
NOTHING = "–"
"""In place of our number."""
GAIN = "gain [95 %]"
PARTS = ("paper", GAIN, "paper's gain", "p")
"""Parts of a column behind our numbers; one that no row has is left out."""


@dataclass(frozen=True)
class Asked:
    """Input of a table."""

    study: Study
    """With a finished run."""
    name: str
    """The table's own."""
    gain: bool = False
    """True if differences are shown in tables that can do without."""


@dataclass(frozen=True)
class TableCell:
    """Our numbers and the paper's for one row and column; None where there is none."""

    scores: Values | None = None
    """Ours, by seed."""
    against: Comparison | None = None
    """Ours minus that of its base, or of the one baseline; or what the grid names."""
    best: bool = False
    """The best of its column, or without a detectable difference from it: the interval of that contains 0."""
    published: Published | None = None
    """In the setting of ours."""
    published_difference: float | None = None
    """In the same published table."""
    signed: bool = False
    """Ours is a difference itself."""
    switch: bool | None = None
    """On or off, in place of any number."""

    @cached_property
    def ours(self) -> Estimate | None:
        """Mean of our numbers; None where there are none."""
        return student(self.scores) if self.scores is not None and len(self.scores) else None

    @property
    def excludes_published(self) -> bool:
        """The interval of our mean does not contain the published number."""
        if not self.ours or not self.published:
            return False
        return self.ours.low > self.published.value or self.ours.high < self.published.value

    def texts(self, usual: int, digits: int, gains: bool) -> dict[str, str]:
        """Return the text of each part that the cell has; of our own number by the name `ours`."""
        ours, comparison, papers = self.ours, self.against, self.published_difference
        texts = {"ours": NOTHING}
        if self.switch is not None:
            texts["ours"] = "✓" if self.switch else "✗"
        elif ours and not (self.signed and gains and comparison):  # else the gain says it
            mean = (signed if self.signed else number)(ours.mean, digits)
            spread = "" if ours.n == 1 else f" ± {ours.std:.{digits}f}"
            texts["ours"] = mean + spread + DAGGER * self.excludes_published + _of(ours.n, usual)
        if self.published:
            texts["paper"] = f"{self.published.value:.{digits}f}"
        if papers is not None and gains:
            texts["paper's gain"] = signed(papers, digits)
        if gains and comparison:
            texts[GAIN] = replace(comparison, digits=digits).short + _of(comparison.n, ours.n if ours else comparison.n)
            if comparison.test != "none":
                texts["p"] = p_written(comparison.p) + f" ({comparison.family})" * (comparison.family != MAIN)
        return texts

    def numbers(self) -> dict[str, Any]:
        """Return every number by its name in `columns.yaml`."""
        numbers = {}
        for name, path in COLUMNS["cells"].items():
            value: Any = self
            for name_part in path.split("."):
                value = getattr(value, name_part, None)
            if value not in (None, "") and (self.ours or name != "best"):
                numbers[name] = int(value) if isinstance(value, bool) else value
        return numbers


def _of(n: int, usual: int) -> str:
    return "" if n == usual else f" (n={n})"


@dataclass(frozen=True)
class Table:
    """Everything that any format shows: in a notebook as HTML, elsewhere as Markdown."""

    name: str
    study: Study
    caption: str
    texts: pd.DataFrame
    """By row label; by column label and what a part of the column holds, empty where it has one part."""
    bold: frozenset[tuple[str, tuple[str, str]]]
    """Rows and columns of `texts`."""
    frame: pd.DataFrame
    """Its numbers, as the CSV has them: one line per cell, with the columns of `columns.yaml`."""
    notes: list[str]

    def __str__(self) -> str:
        return render.to_markdown(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return render.to_part(self)

    @property
    def heads(self) -> list[tuple[str, str]]:
        """Columns of `texts`: label, and what a part of the column holds."""
        return [(str(head[0]), str(head[1])) for head in self.texts.columns]


def compose(
    asked: Asked,
    cells: Mapping[Key, TableCell],
    subject: str,
    notes: Iterable[str],
    *,
    baselines: Mapping[str, str] | None = None,
    gain: str = "",
    digits: int = 1,
    shown: Mapping[Key, TableCell] | None = None,
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
    """
    baselines, shown, printed = baselines or {}, shown or cells, asked.study.printed
    _, heads = asked.study.heads
    bases = {baselines[row] for (row, _), cell in cells.items() if cell.against and row in baselines}
    over = gain or f"over {asked.study.baseline or (bases.pop() if len(bases) == 1 else 'its own base')}"
    gains = bool(gain or asked.gain) and any(cell.against for cell in cells.values())
    lines = []
    for (row, column), cell in cells.items():
        labels = {"row": row, "column": column}
        if cell.against and row in baselines:
            labels["baseline"] = baselines[row]
        lines.append({name: plain(label) for name, label in labels.items()} | cell.numbers())
    numbers = pd.DataFrame(lines).reindex(columns=["row", "column", *COLUMNS["cells"]])
    if gains and (numbers[["difference_low", "difference_high"]].abs() < 0.05).any(axis=None):
        digits = 2  # one decimal would hide which interval excludes 0
    sizes = Counter(cell.ours.n for cell in cells.values() if cell.ours)
    usual = max(sizes, key=lambda n: (sizes[n], n), default=0)

    texts = {}
    bold = set()
    for label in dict.fromkeys(column for _, column in shown):
        name = heads.get(label, printed(label))
        column_cells = {printed(row): cell for (row, column), cell in shown.items() if column == label}
        column_texts = {row: cell.texts(usual, digits, gains) for row, cell in column_cells.items()}
        parts = [part for part in PARTS if any(part in cell_texts for cell_texts in column_texts.values())]
        ours = any(cell_texts["ours"] != NOTHING for cell_texts in column_texts.values())
        if parts or ours:
            measured = asked.study.metrics.get(label, asked.study.measured) if parts or not name else ""
            first = "ours" if "paper" in parts else measured
            for head, part in ([(first, "ours")] if ours else []) + [(part, part) for part in parts]:
                texts[name, head] = {row: cell_texts.get(part, "") for row, cell_texts in column_texts.items()}
            bold |= {(row, (name, first)) for row, cell in column_cells.items() if cell.best}

    caption = render.template(
        "caption.txt.j2",
        cells=list(cells.values()),
        subject=subject,
        tested=asked.study.note("tested", named=named(asked.study).values()) if any(p == "p" for _, p in texts) else [],
        usual=usual,
        bold=bold,
        gains=gains,
        over=over,
    )
    return Table(
        asked.name,
        asked.study,
        printed(" ".join(caption.splitlines())),
        pd.DataFrame(texts, index=list(dict.fromkeys(printed(row) for row, _ in shown)), dtype=object).fillna(""),
        frozenset(bold),
        numbers,
        list(map(printed, notes)),
    )
