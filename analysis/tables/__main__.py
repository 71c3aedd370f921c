"""Tables from records: `python -m analysis.tables` prints all that the records allow, and writes them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis import command, frame
from analysis.published import Publication
from analysis.tables import context
from analysis.tables.registry import build, names
from analysis.tables.render import FORMATS, to_terminal
from analysis.tables.shared import METRICS, Table, check_baseline
from analysis.text import one_line
from initializers.errors import unknown_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = command.parser(
        "analysis.tables",
        "Print tables from records and write them, differences to each method's own base.",
        frame.LOCAL / "tables",
        "the tables of one study (default: of all)",
    )
    parser.add_argument("--table", metavar="NAME", help="one table by name (default: all)")
    parser.add_argument(
        "--format",
        metavar="NAME",
        action="extend",
        type=lambda text: text.split(","),
        help=f"what to write, repeated or with commas: {', '.join(FORMATS)} (default: latex)",
    )
    parser.add_argument("--metric", choices=sorted(METRICS), default="last", help="which epoch (default: last)")
    parser.add_argument("--context", action="store_true", help="print the published tables too, whatever their setting")
    args = parser.parse_args(arguments)
    return command.guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    formats = dict.fromkeys(args.format or ["latex"])
    for name in formats:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS)
    studies = frame.load_all(args.results, args.study)
    available = {name: study for study in studies for name in names(study)}
    if args.table and args.table not in available:
        raise unknown_name("table", args.table, available)
    if not available:
        studies[0].require_runs()
    check_baseline(args.baseline, studies)

    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    out = command.folder(args.out)
    seen = set()
    papers = []
    for study in [] if args.table else studies:
        if not names(study):
            console.print(f"study {study.name}: no table, no run is finished")
    for name in [args.table] if args.table else available:
        study = available[name]
        # A row of another study is no reason to refuse this one: its foot says what its differences are to.
        baseline = args.baseline if args.baseline in study.rows else None
        table = build(study, name, args.metric, baseline)
        if study.name not in seen:
            for line in study.summary():
                console.print(line)
            seen.add(study.name)
        _print(console, table)
        if args.context and table.published and table.published not in papers:
            papers.append(table.published)
        for kind in formats:
            ending, write = FORMATS[kind]
            path = out / f"{name}.{ending}"
            command.write(path, write(table))
            console.print(f"wrote {path}")
    for paper in papers:
        _print_published(console, *paper)


def _print(console: Console, table: Table) -> None:
    _print_whole(console, table.caption, to_terminal(table), table.notes)


def _print_published(console: Console, paper: Publication, name: str) -> None:
    caption = one_line(f"Published: {name} of {paper.cited}: {paper.tables[name].title}")
    _print_whole(console, caption, context.to_terminal(paper, name), context.notes(paper, name))


def _print_whole(console: Console, caption: str, shown: RichTable, notes: list[str]) -> None:
    from rich.measure import Measurement

    # Wider than the terminal is better than numbers broken in two.
    console.width = max(console.width, Measurement.get(console, console.options.update(max_width=1000), shown).maximum)
    console.print(caption)
    console.print(shown)
    for note in notes:
        console.print(note)


if __name__ == "__main__":
    sys.exit(main())
