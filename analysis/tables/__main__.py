"""Tables from records: `python -m analysis.tables` writes all tables, and prints the main table of each study."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from vitinit.analysis import command, frame
from vitinit.analysis.published import FOLDER, Publication
from vitinit.analysis.registry import refuse
from vitinit.analysis.tables import context
from vitinit.analysis.tables.contrasts import of_contrasts
from vitinit.analysis.tables.notes import caption
from vitinit.analysis.tables.printing import reading
from vitinit.analysis.tables.printing.terminal import to_terminal
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import FORMATS
from vitinit.analysis.tables.shared import METRICS, Table, TableLayout, check_baseline
from vitinit.analysis.text import count
from vitinit.initializers.errors import BrokenFile, VitinitError, unknown_name

if TYPE_CHECKING:
    from vitinit.analysis.frame import Study
    from vitinit.benchmark.terminal import Terminal


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = command.parser(
        "vitinit.analysis.tables",
        "Write all tables from records, and print the main table of each study with its verdict: gains over the own "
        "base of each method.",
        "tables",
    )
    parser.add_argument(
        "--table",
        metavar="NAME",
        help="write and print one table, such as small_start (default: write all)",
    )
    parser.add_argument("--all", action="store_true", help="print every table, with its gains and all its notes")
    parser.add_argument("--gain", action="store_true", help="add paired differences with intervals and p")
    parser.add_argument("--rows", metavar="ROW", nargs="+", help="only these rows, in this order; * matches any text")
    parser.add_argument("--drop", metavar="ROW", nargs="+", help="leave these rows out")
    parser.add_argument("--order", metavar="ROW", nargs="+", help="these rows first, in this order")
    parser.add_argument("--title", metavar="TEXT", help="beginning of the caption (default: the grid's title)")
    parser.add_argument("--label", metavar="NAME", help="for \\ref in LaTeX (default: tab: and the table's name)")
    parser.add_argument("--digits", metavar="N", type=int, choices=range(7), help="decimals (default: 1 for percent)")
    parser.add_argument("--two-column", action="store_true", help="LaTeX for one column of a two-column article")
    parser.add_argument(
        "--format",
        metavar="NAME",
        action="extend",
        type=lambda text: text.split(","),
        help=f"formats, repeated or with commas: {', '.join(FORMATS)} (default: latex)",
    )
    parser.add_argument(
        "--metric",
        default="last",
        help="last or best epoch (default: last), or another metric, such as top5 (written to tables-top5)",
    )
    parser.add_argument(
        "--together", action="store_true", help="add an average over datasets: mean, interquartile mean, P(better)"
    )
    parser.add_argument("--context", action="store_true", help="print published tables too, of any setting")
    args = parser.parse_args(arguments)
    return command.guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    formats = dict.fromkeys(args.format or ["latex"])
    for name in formats:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS)
    whole, gain = args.all, args.gain or args.baseline is not None
    look = TableLayout(gain, whole, args.digits, args.title, args.label, args.two_column)
    found = frame.load_all(args.results, args.study)
    place = "tables"
    if args.metric not in METRICS:
        place = f"tables-{args.metric}"
        found, args.metric = [study.by(args.metric) for study in found], "last"
    tables = {study.name: names(study) for study in found}
    available = {name: study for study in found for name in tables[study.name]}
    if args.table and args.table not in available:
        raise unknown_name("table", args.table, available)
    if not available:
        found[0].require_runs()
    check_baseline(args.baseline, found)
    _check_rows(args, found)

    from vitinit.benchmark.terminal import Terminal

    console = Terminal()
    studies = [available[args.table]] if args.table else found
    papers: list[tuple[Publication, str]] = []
    broken: list[BrokenFile] = []
    for study in studies:
        console.print(study.summary())
        if not tables[study.name]:
            console.print("no table, no run is finished")
            console.print()
            continue
        out = study.home / place
        if args.out:
            out = args.out / study.name if len(studies) > 1 else args.out
        command.folder(out)
        # The baseline may be a row of another study: this one then compares with own bases, and its notes say so.
        baseline = args.baseline if args.baseline in study.rows else None
        rows = _rows(study, args)
        own = named = None
        for name in [args.table] if args.table else tables[study.name]:
            try:
                table = build(study, name, args.metric, baseline, args.together, rows)
            except BrokenFile as error:
                broken.append(error)
                continue
            for kind in formats:
                ending, write = FORMATS[kind]
                command.write(out / f"{name}.{ending}", write(table, look))
            if args.all or args.table:
                _print(console, table, look)
            elif name == study.name:
                own = table
            elif of_contrasts(table):
                named = table
            if args.context and table.published and table.published not in papers:
                papers.append(table.published)
        if own:
            _print_brief(console, own, named, look)
        written = 1 if args.table else len(tables[study.name])
        beside = [name for name in ("figures", "curves") if (study.home / name).is_dir()]
        drawn = f"; {' and '.join(beside)} are there, too" if beside and not args.out else ""
        console.print(f"{count(written, 'table')} as {', '.join(formats)} in {out}{drawn}")
        console.print()
    if not FOLDER.is_dir():
        console.print(f"No published numbers stand beside ours: a clone has them, {FOLDER} is not there")
    for paper in papers:
        _print_published(console, *paper)
    console.print(f"Next: a page for the browser, {'' if whole else 'every table and note, '}what goes on inside")
    options = [f"--results {shlex.join(map(str, args.results))}"] if args.results else []
    options += [f"--study {shlex.quote(studies[0].name)}"] if len(studies) == 1 else []
    for name in ("report", *([] if args.all else ["tables --all"]), "curves"):
        line = " ".join([f"{command.python()} -m vitinit.analysis.{name}", *options])
        console.print(line, soft_wrap=True)
    refuse(broken)


def _rows(study: Study, args: argparse.Namespace) -> list[str] | None:
    """Return the rows chosen by the options, in order; None: all."""
    if not (args.rows or args.drop or args.order):
        return None
    shown = _matching(study.rows, args.rows) if args.rows else study.rows
    dropped = _matching(shown, args.drop or [])
    first = _matching(shown, args.order or [])
    return [row for row in dict.fromkeys([*first, *shown]) if row not in dropped]


def _matching(rows: list[str], patterns: list[str]) -> list[str]:
    """Return the rows that match, in the order of the patterns; * matches any text."""
    return [row for pattern in patterns for row in rows if row == pattern or fnmatchcase(row, pattern)]


def _check_rows(args: argparse.Namespace, studies: list[Study]) -> None:
    """Refuse patterns that match no row of any study, and options that leave no row."""
    rows = list(dict.fromkeys(row for study in studies for row in study.rows))
    for pattern in [*(args.rows or []), *(args.drop or []), *(args.order or [])]:
        if not _matching(rows, [pattern]):
            raise unknown_name("row", pattern, rows)
    if all(_rows(study, args) == [] for study in studies):
        raise VitinitError("no row is left: --rows and --drop. Name one more, or drop one less")


def _print_brief(console: Terminal, table: Table, named: Table | None, look: TableLayout) -> None:
    """Print the main table, the table of contrasts, and their reading."""
    for each in (table, named):
        if each:
            _print(console, each, replace(look, title=look.title if each is table else None))
            console.print()
    for text in [*reading.without_numbers(table), *reading.sentences(table, None if table.baseline else named)]:
        console.print(text)


def _print(console: Terminal, table: Table, look: TableLayout) -> None:
    """Print caption and table; with `--all` the notes, too."""
    console.print(caption(table, look))
    console.print()
    for number, panel in enumerate(to_terminal(table, console.width, look)):
        if number:
            console.print()
        console.print(panel)
    for note in table.notes if look.whole else ():
        console.print(note)


def _print_published(console: Terminal, paper: Publication, name: str) -> None:
    console.print(f"Published: {name} of {paper.cited}: {paper.tables[name].title}")
    console.print(context.to_terminal(paper, name))
    for note in context.notes(paper, name):
        console.print(note)


if __name__ == "__main__":
    sys.exit(main())
