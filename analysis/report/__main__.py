"""One page of everything that the records of one or several studies say: `python -m analysis.report`.

The page is one file that needs no other and no network. The same records give the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from vitinit.analysis import command, frame
from vitinit.analysis.board import SUBMISSIONS
from vitinit.analysis.board import tables as board_tables
from vitinit.analysis.registry import refuse
from vitinit.analysis.report.page import to_html
from vitinit.analysis.report.section import sections
from vitinit.analysis.tables.shared import check_baseline
from vitinit.initializers.errors import unknown_name


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = command.parser(
        "vitinit.analysis.report",
        "Write one HTML page with the answer, tables, figures, runs and provenance, for reading anywhere.",
        "report.html",
    )
    parser.add_argument(
        "--lead", metavar="STUDY", help="study that leads the page (default: the result with most training)"
    )
    args = parser.parse_args(arguments)

    def run() -> None:
        found = frame.load_all(args.results, args.study)
        studies = [study for study in found if study.contents.done]
        if not studies:
            found[0].require_runs()
        names = [study.name for study in studies]
        if args.lead is not None and args.lead not in names:
            raise unknown_name("study of --lead", args.lead, names)
        check_baseline(args.baseline, studies)
        from vitinit.analysis.plotting import fonts

        command.say(fonts.use_for(studies))
        command.say(
            study.summary() if study in studies else f"Study {study.name}: left out, no finished run" for study in found
        )
        root = studies[0].home if args.study else frame.home(studies[0].folders)
        out: Path = args.out or root / "report.html"
        command.folder(out.parent)
        shown = sections(studies, args.baseline)
        # of other records than the committed ones nothing stands on the board
        committed = frame.REFERENCE.resolve() in [folder.resolve() for folder in args.results or ()]
        board = board_tables(studies, SUBMISSIONS) if committed else []
        command.write(out, to_html(shown, args.lead, board))
        command.say([f"wrote {out}"])
        refuse([error for each in shown for error in each.broken])

    return command.guarded(run)


if __name__ == "__main__":
    sys.exit(main())
