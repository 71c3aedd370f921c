"""Table 2 from records: `python -m analysis.tables` prints it and writes `table2.tex`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import command
from analysis.frame import LOCAL, Study, load
from analysis.published import PublishedCell, lookup
from analysis.text import escape_latex, one_line
from benchmark.spec import RunSpec
from initializers.errors import VitinitError, unknown_name

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as RichTable

BASELINE = "Trunc normal"
METRICS = {"last": "top1", "best": "best_top1"}


@dataclass(frozen=True)
class Cell:
    """Our numbers and the paper's for one row and column; None where there is none."""

    n: int = 0
    mean: float | None = None
    std: float | None = None
    """Sample standard deviation (ddof=1)."""
    difference: float | None = None
    """To the baseline: mean over common seeds of the differences by seed."""
    published: PublishedCell | None = None
    published_difference: float | None = None

    @property
    def ours(self) -> str:
        """Mean and spread; a dash for a cell without a finished run."""
        if self.mean is None:
            return "–"
        return f"{self.mean:.2f}" + ("" if self.std is None else f"±{self.std:.2f}")

    @property
    def ours_below(self) -> str:
        """Difference to the baseline and number of seeds."""
        parts = [] if self.difference is None else [signed(self.difference)]
        return ", ".join([*parts, f"n={self.n}"]) if self.n else ""

    @property
    def paper(self) -> str:
        """The published number."""
        return "" if self.published is None else f"{self.published.value:.2f}"

    @property
    def paper_below(self) -> str:
        """The published difference to the published baseline."""
        return "" if self.published_difference is None else signed(self.published_difference)


@dataclass(frozen=True)
class Column:
    """A dataset of the table: one column of ours, a second one where the paper has numbers."""

    label: str
    published: bool
    first: int
    """Position in the LaTeX table, counted from 1; the row labels are 1."""

    @property
    def width(self) -> int:
        """How many columns it takes."""
        return 2 if self.published else 1


@dataclass(frozen=True)
class Table:
    """Everything the terminal and LaTeX show."""

    study: Study
    caption: str
    rows: list[str]
    columns: list[Column]
    cells: dict[tuple[str, str], Cell]
    notes: list[str]

    def cell(self, row: str, column: Column) -> Cell:
        """The cell of a row label and a column."""
        return self.cells[row, column.label]


def build(study: Study, metric: str = "last", baseline: str | None = None) -> Table:
    """Compute the table.

    Args:
        study: The records.
        metric: `last` or `best` epoch.
        baseline: Row label that differences are to. Default: "Trunc normal", and no differences without that row.

    Raises:
        VitinitError: no finished run, or no row of that name.
    """
    from analysis.notes import notes

    study.require_runs()
    if baseline is not None and baseline not in study.rows:
        raise unknown_name("baseline row", baseline, study.rows)
    baseline = baseline or BASELINE
    groups = study.runs.groupby(["row", "column"])
    values = {key: group.set_index("seed")[METRICS[metric]] for key, group in groups}
    cells = {}
    examples = _examples(study)
    for column in study.columns:
        reference = _published(examples, baseline, column) if baseline in study.rows else None
        for row in study.rows:
            published = _published(examples, row, column)
            other = reference if row != baseline else None
            cells[row, column] = replace(
                _ours(values.get((row, column)), values.get((baseline, column)) if row != baseline else None),
                published=published,
                published_difference=published.value - other.value if published and other else None,
            )
    columns: list[Column] = []
    for label in study.columns:
        first = sum(column.width for column in columns) + 2
        columns.append(Column(label, any(cells[row, label].published for row in study.rows), first))
    shown = [cell.published for cell in cells.values() if cell.published]
    caption = f"Top-1 accuracy by initialisation, study {study.name}: ours beside the published numbers."
    return Table(study, one_line(caption), study.rows, columns, cells, notes(study, metric, baseline, shown))


def _ours(values: pd.Series[float] | None, baseline: pd.Series[float] | None) -> Cell:
    if values is None:
        return Cell()
    # pandas subtracts by index, that is by seed; a seed that only one side has gives NaN.
    differences = (values - baseline).dropna() if baseline is not None else values.iloc[:0]
    return Cell(
        n=len(values),
        mean=float(values.mean()),
        std=float(values.std(ddof=1)) if len(values) > 1 else None,
        difference=float(differences.mean()) if len(differences) else None,
    )


def _examples(study: Study) -> dict[tuple[str | None, str | None], RunSpec]:
    """The first run's spec by row and column, by row alone (with column None) and by column alone (with row None)."""
    examples: dict[tuple[str | None, str | None], RunSpec] = {}
    for outcome in study.outcomes:
        row, column = outcome.row, study.column[outcome.run_id]
        for key in ((row, column), (row, None), (None, column)):
            examples.setdefault(key, outcome.spec)
    return examples


def _published(examples: dict[tuple[str | None, str | None], RunSpec], row: str, column: str) -> PublishedCell | None:
    """The paper's cell; it depends on what the row and the column are, not on whether their run is there."""
    spec = examples.get((row, column)) or examples[row, None]
    return lookup(spec.model_copy(update={"dataset": examples[None, column].dataset}))


def signed(value: float) -> str:
    """Two decimals with a sign, a true minus, and no sign for zero."""
    text = f"{value:+.2f}".replace("-", "−")
    return text[1:] if text[1:] == "0.00" else text


def to_latex(table: Table) -> str:
    """A complete `table` environment."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        block_start_string="((*",
        block_end_string="*))",
        variable_start_string="(((",
        variable_end_string=")))",
        comment_start_string="((=",
        comment_end_string="=))",
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["escape"] = escape_latex
    return environment.get_template("table2.tex.j2").render(table=table)


def to_terminal(table: Table) -> RichTable:
    """The same table for rich. Text objects, because a row label may look like rich's markup."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    result = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    result.add_column("")
    for column in table.columns:
        result.add_column(Text(f"{one_line(column.label)}\nours"), justify="right")
        if column.published:
            result.add_column(Text("\npaper"), justify="right", style="dim")
    for row in table.rows:
        texts = [Text(one_line(row))]
        for column in table.columns:
            cell = table.cell(row, column)
            texts.append(Text(f"{cell.ours}\n{cell.ours_below}"))
            if column.published:
                texts.append(Text(f"{cell.paper}\n{cell.paper_below}"))
        result.add_row(*texts)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = command.parser("analysis.tables", "Print Table 2 from records and write table2.tex.", LOCAL / "tables")
    parser.add_argument("--metric", choices=sorted(METRICS), default="last", help="which epoch (default: last)")
    parser.add_argument("--baseline", metavar="ROW", help=f"row label that differences are to (default: {BASELINE!r})")
    args = parser.parse_args(arguments)

    def run() -> None:
        from rich.console import Console
        from rich.measure import Measurement

        study = load(args.results, args.study)
        table = build(study, args.metric, args.baseline)
        shown = to_terminal(table)
        console = Console(highlight=False, markup=False, soft_wrap=True)
        # Wider than the terminal is better than numbers broken in two.
        needed = Measurement.get(console, console.options.update(max_width=1000), shown).maximum
        console.width = max(console.width, needed)
        for line in study.summary():
            console.print(line)
        console.print(shown)
        for note in table.notes:
            console.print(note)
        path = command.folder(args.out) / "table2.tex"
        try:
            path.write_text(to_latex(table), encoding="utf-8")
        except OSError as error:
            raise VitinitError(f"cannot write {path}: {error.strerror or error}") from None
        console.print(f"wrote {path}")

    return command.guarded(run)


if __name__ == "__main__":
    sys.exit(main())
