"""Write the page of each study, an index and the board: `python -m analysis.pages`.

A study's page comes from its records by `analysis/pages/templates/study.md.j2`. In `results/reference` of this
repository, and there alone, it may have a template of its own, `page.md.j2` in its folder, which extends it; and a
template `NAME.md.j2` beside the studies becomes `NAME.md`, a page over several of them. The pictures that pages show
are drawn, too. The same records give the same bytes.
"""

from typing import Annotated

import typer

from vitinit.analysis import command, frame
from vitinit.analysis.board import page as board_page
from vitinit.analysis.figures import style
from vitinit.analysis.figures.drawing import finished
from vitinit.analysis.pages.render import is_ours, page, pictures, render
from vitinit.initializers.errors import VitinitError, count


def run(
    results: command.ResultsOption = None,
    name: command.StudyOption = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where a page is not up to date.")] = False,
) -> None:
    """Write the page of each study, an index and the board, from records and templates; of one study its page alone."""
    studies = finished(results, name, None)
    folder = studies[0].folders[0]
    texts = {study.name: page(study, studies) for study in studies}
    pages = {frame.beside(folder / study, "") / "README.md": text for study, text in texts.items()}
    if not name:
        over = {
            path.with_suffix("").name: render(path.name, [folder], studies)
            for path in (sorted(folder.glob("*.md.j2")) if is_ours([folder]) else ())
        }
        if board := board_page(studies):
            over["board.md"] = board
        over["README.md"] = render("index.md.j2", pages=texts, over=over)
        pages |= {folder / file: text for file, text in over.items()}
    drawn = {
        frame.beside(folder / study.name, "figures") / f"{file}.png": grid
        for study in studies
        for file, grid in pictures(study, texts[study.name]).items()
    }
    written = f"{count(len(pages), 'page')} and {count(len(drawn), 'picture')}"
    if not check:
        for path, text in pages.items():
            command.write(path, text)
        for path, grid in drawn.items():
            style.save_png(grid, path)
        print(f"wrote {written} to {folder / (name or '')}")
        return
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_bytes() != text.encode()]
    stale += [path for path, grid in drawn.items() if not style.shows(path, grid)]
    if stale:
        raise VitinitError(
            f"{', '.join(map(str, stale))}: not what the records and the template give: write the pages anew"
        )
    print(f"up to date: {written}")


main = command.main_of(run, __name__)
