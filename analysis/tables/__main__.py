"""Tables from records: `python -m analysis.tables` writes all tables, and prints the main table of each study."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from vitinit.analysis import command, frame
from vitinit.analysis.published import FOLDER
from vitinit.analysis.rows import check_baseline
from vitinit.analysis.tables import notes
from vitinit.analysis.tables.contrasts import of_contrasts
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import FORMATS, to_terminal
from vitinit.analysis.text import count
from vitinit.initializers.errors import BrokenFile, VitinitError, guarded, unknown_name


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run."""
    parser = command.parser(
        "vitinit.analysis.tables",
        "Write all tables from records, and print the main table of each study with a summary: gains over the "
        "base of each method.",
        "tables",
    )
    parser.add_argument(
        "--table", metavar="NAME", help="write and print one table, such as small_masked (default: write all)"
    )
    parser.add_argument("--all", action="store_true", help="print every table, with its gains and all its notes")
    parser.add_argument("--gain", action="store_true", help="add paired differences with their intervals")
    parser.add_argument(
        "--format",
        metavar="NAME",
        default="latex",
        help=f"formats, with commas: {', '.join(FORMATS)} (default: latex)",
    )
    parser.add_argument(
        "--metric",
        default="last",
        help="last or best epoch (default: last), or another metric, such as top5 (written to tables-top5)",
    )
    args = parser.parse_args(arguments)
    return guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    formats = args.format.split(",")
    for name in formats:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS)
    found = [study.by(args.metric) for study in frame.load_all(args.results, args.study)]
    place = "tables" if args.metric in ("last", "best") else f"tables-{args.metric}"
    available = {name: study for study in found for name in names(study)}
    if args.table and args.table not in available:
        raise unknown_name("table", args.table, available)
    if not available:
        found[0].require_runs()
    check_baseline(args.baseline, found)

    from vitinit.benchmark.terminal import Terminal

    console, gain = Terminal(), args.gain or args.all or args.baseline is not None
    studies = [available[args.table]] if args.table else found
    broken: list[VitinitError] = []
    for study in studies:
        console.print(study.summary())
        out = command.folder(study.out(args.out, place, len(studies) == 1))
        # The baseline may be a row of another study: this one then compares with own bases, and its notes say so.
        baseline = args.baseline if args.baseline in study.rows else None
        tables = []
        for name in [args.table] if args.table else names(study):
            try:
                tables.append(build(study, name, baseline, gain))
            except BrokenFile as error:
                broken.append(error)
        named = next((table for table in tables if of_contrasts(table)), None)
        brief = not (args.all or args.table)
        for table in tables:
            for kind in formats:
                ending, write = FORMATS[kind]
                command.write(out / f"{table.name}.{ending}", write(table, args.all))
            if not brief or table.name == study.name or table is named:
                for line in (table.caption, *to_terminal(table, console.width), *(table.notes if args.all else ())):
                    console.print(line)
        if brief:
            summary = notes.sentences(tables[0], None if args.baseline else named) if tables else []
            for line in (*notes.without_numbers(study), *notes.mixed_code(study), *summary):
                console.print(line)
        console.print(f"{count(len(tables), 'table')} as {', '.join(formats)} in {out}\n")
    if not FOLDER.is_dir():
        console.print(f"No published numbers are shown: {FOLDER} is missing; a clone of the repository has it")
    command.refuse(broken)


if __name__ == "__main__":
    sys.exit(main())
