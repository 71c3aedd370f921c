"""Pages from facts and templates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis import frame
from vitinit.analysis.pages.difference import pooled_estimate
from vitinit.analysis.pages.facts import Facts
from vitinit.analysis.text import escape_markdown, number
from vitinit.initializers.errors import VitinitError

if TYPE_CHECKING:
    from jinja2 import Environment

    from vitinit.analysis.board import Entry

TEMPLATES = Path(__file__).parent / "templates"
OWN = "page.md.j2"
"""Template of one study, in its folder."""
SHORT = [name for name in dir(Facts) if not name.startswith("_") and callable(getattr(Facts, name))]
"""Methods of `Facts` that a template calls by their bare name."""


def page(study: frame.Study) -> str:
    """Return the page of a study as Markdown: title, question, answer, and all else.

    Raises:
        VitinitError: no finished run, an error in the template, or a claim that the records do not bear.
    """
    from jinja2 import TemplateError

    facts = Facts(study)
    name = f"{study.name}/{OWN}"
    if not any((folder / name).is_file() for folder in study.folders):
        tuning = all(run.spec.dataset.evaluate_on == "val" for run in study.contents.done.values())
        name = "tuning.md.j2" if tuning else "study.md.j2"
    values: dict[str, Any] = {short: getattr(facts, short) for short in SHORT}
    try:
        text = _environment(study.folders).get_template(name).render(facts=facts, **values)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = f"{name}, line {line}" if line else name
        raise VitinitError(f"template {where}: {error.message}") from None
    except TypeError as error:  # a function is called with other arguments than it takes
        raise VitinitError(f"template {name}: {error}") from None
    except VitinitError as error:
        raise VitinitError(f"page of study {study.name}: {error}") from None
    return re.sub(r"\n{3,}", "\n\n", text)


def index(pages: dict[str, str]) -> str:
    """Return one line for each study, by its name: question and answer, the paragraphs below the title of its page."""
    lines = []
    for name, text in pages.items():
        paragraphs = text.split("\n\n")
        if len(paragraphs) < 3:
            raise VitinitError(f"page of study {name}: has no question and answer, the paragraphs below its title")
        _, question, answer, *_ = paragraphs
        lines.append((name, *(" ".join(part.split()) for part in (question, answer))))
    return _environment([]).get_template("index.md.j2").render(studies=lines)


def board(tables: Sequence[tuple[str, Sequence[Entry]]]) -> str:
    """Return the board: for each setting its title and its entries in order."""
    text = _environment([]).get_template("board.md.j2").render(tables=tables)
    return re.sub(r"\n{3,}", "\n\n", text)


def over_studies(template: Path) -> str:
    """Return a page over several studies, whose template names them by `study(NAME)`."""
    return _environment([template.parent]).get_template(template.name).render()


def _environment(folders: Sequence[Path]) -> Environment:
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(  # a results folder may come from somebody else
        loader=FileSystemLoader([*folders, TEMPLATES]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"md": escape_markdown, "fixed": _fixed}
    environment.globals |= {
        "pooled_estimate": pooled_estimate,
        "study": lambda name: Facts(frame.load(list(folders), name)),
    }
    return environment


def _fixed(value: float, digits: int = 1) -> str:
    """Filter of templates: a number with so many decimals."""
    return number(value, digits)
