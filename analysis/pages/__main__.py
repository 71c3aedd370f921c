"""Write the page of each study, an index and the board: `python -m analysis.pages`.

A study's page comes from its records by `analysis/pages/templates/study.md.j2`, or by a template of its own,
`page.md.j2` in the study's folder, which extends it. A template `NAME.md.j2` beside the studies becomes
`NAME.md`, a page over several of them. The same records give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vitinit.analysis import command, frame
from vitinit.analysis.board import page as board_page
from vitinit.analysis.pages.render import index, over_studies, page
from vitinit.initializers.errors import VitinitError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m vitinit.analysis.pages",
        description="Write the page of each study, an index and the board, from records and templates.",
    )
    command.takes_results(parser)
    parser.add_argument("--study", metavar="NAME", help="page of this study only, no index (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is not up to date")
    args = parser.parse_args(arguments)
    return command.guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    found = frame.load_all(args.results, args.study)
    studies = [study for study in found if study.contents.done]
    if not studies:
        found[0].require_runs()
    folder = studies[0].folders[0]
    texts = {study.name: page(study) for study in studies}
    pages = {folder / name / "README.md": text for name, text in texts.items()}
    if not args.study:
        pages[folder / "README.md"] = index(texts)
        if board := board_page(studies):
            pages[folder / "board.md"] = board
        pages |= {path.with_suffix(""): over_studies(path) for path in sorted(folder.glob("*.md.j2"))}
    if args.check:
        _check(pages, args.results)
        return
    for path, text in pages.items():
        command.write(path, text)
        print(f"wrote {path}")


def _check(pages: dict[Path, str], results: list[Path] | None) -> None:
    """Refuse pages that differ from what the records and templates give."""
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if stale:
        option = f" --results {' '.join(map(str, results))}" if results else ""
        raise VitinitError(
            f"{', '.join(map(str, stale))}: not what the records and the template give. Write the pages anew: "
            f"python -m vitinit.analysis.pages{option}"
        )
    print(f"{len(pages)} pages are up to date")


if __name__ == "__main__":
    sys.exit(main())
