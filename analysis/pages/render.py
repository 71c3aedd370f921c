"""Pages from facts and templates."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment

from vitinit.analysis import command, frame
from vitinit.analysis.comparison import named, unnamed
from vitinit.analysis.figures import style
from vitinit.analysis.figures.drawing import figure
from vitinit.analysis.pages.facts import Facts, detectable, short, spread
from vitinit.analysis.rows import mixed_code
from vitinit.analysis.tables.notes import not_initialisation_alone
from vitinit.analysis.tables.render import templates
from vitinit.analysis.text import number, p_written
from vitinit.benchmark.grids import grid
from vitinit.benchmark.records.store import REFERENCE
from vitinit.initializers.errors import VitinitError

TEMPLATES = Path(__file__).parent / "templates"
OWN = "page.md.j2"
"""Template of one study, in its folder."""
OURS = Path(__file__).resolve().parents[2] / REFERENCE
"""Folder whose templates are filled in. They are code, and other folders with records may be anybody's."""
LIVE = re.compile(
    r"(?<!\\)((?:\\\\)*)(<(?=[a-zA-Z/!?])(?!/?sub>)|(?<=\])[(:](?=\s*<?(?!https?:)([a-zA-Z][a-zA-Z0-9+.-]*:|[^)\s]*&)))",
    re.IGNORECASE,
)
"""HTML, and links to scripts, which no template writes: they come from a record. An even number of backslashes before
it escapes nothing."""
SHORT = [name for name in dir(Facts) if not name.startswith("_") and callable(getattr(Facts, name))]
"""Methods of `Facts` that a template calls by their bare name."""


def page(study: frame.Study, others: Iterable[frame.Study] = ()) -> str:
    """Return the page of a study as Markdown: title, question, answer, and all else.

    Args:
        study: Its records.
        others: Studies that are read already, which its template may ask for.

    Raises:
        VitinitError: no finished run, or a claim that the records do not bear.
    """
    facts, name = Facts(study), f"{study.name}/{OWN}"
    if not has_own(study):
        if any((folder / name).is_file() for folder in study.folders):
            command.say([f"{name} is not filled in: a template is code; those of results/reference of a clone are"])
        name = "tuning.md.j2" if set(study.runs["split"]) == {"val"} else "study.md.j2"
    try:
        return render(
            name,
            study.folders if has_own(study) else (),
            others,
            facts=facts,
            **{short: getattr(facts, short) for short in SHORT},
        )
    except VitinitError as error:
        raise VitinitError(f"page of study {study.name}: {error}") from None


def has_own(study: frame.Study) -> bool:
    """Return True if the page of a study has a template of its own; it is for the committed records alone."""
    return is_ours(study.folders) and (OURS / study.name / OWN).is_file()


def is_ours(folders: Sequence[Path]) -> bool:
    """Return True if templates in these folders are filled in."""
    return all(folder.resolve() == OURS for folder in folders)


def pictures(study: frame.Study, text: str) -> dict[str, style.Panels]:
    """Draw the figures that a page shows, by the names of their files without the ending.

    Raises:
        VitinitError: the records do not give one of them.
    """
    return {file: figure(study, file) for file in re.findall(r"\(figures/([^)]+)\.png\)", text)}


def render(name: str, folders: Sequence[Path] = (), studies: Iterable[frame.Study] = (), **values: object) -> str:
    """Return what a template gives: one of ours, or of folders.

    In it `study(NAME)` has the facts of a study there, and `studies` holds the names of those that have records.
    """
    environment, known = _environment(*folders), {study.name: study for study in studies}
    values["studies"] = [*known]
    values["study"] = lambda name: Facts(known.get(name) or frame.load(folders, name))
    macros = environment.get_template("macros.md.j2").make_module(values) if "facts" in values else None
    text = environment.get_template(name).render(values | {key: getattr(macros, key) for key in dir(macros)})
    return re.sub(r"\n{3,}", "\n\n", LIVE.sub(r"\1\\\2", text))


@cache
def _environment(*folders: Path) -> Environment:
    environment = templates(*folders, TEMPLATES, lstrip_blocks=True)
    environment.filters |= {"spread": spread, "short": short, "fixed": number, "p": p_written}
    environment.globals |= {
        "detectable": detectable,
        "grids": grid.names(),
        "named": named,
        "unnamed": unnamed,
        "mixed_code": mixed_code,
        "alone": not_initialisation_alone,
    }
    return environment
