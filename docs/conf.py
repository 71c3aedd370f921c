"""Configuration of the documentation: the repository's texts where they lie, and the docstrings of the public names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.pycode import ModuleAnalyzer

import vitinit
from vitinit.benchmark.grids.schema import Block, GridFile, Row
from vitinit.benchmark.models.registry import families
from vitinit.benchmark.spec import DatasetSpec, Recipe

ROOT = Path(__file__).parents[1]
PLUG_INS = """initializers.registry initializers.attention benchmark.datasets.dataset benchmark.models.family
benchmark.metrics.metric benchmark.augmentations.registry benchmark.schedules
runners.tracking.tracker runners.probes.registry analysis.tables.registry analysis.tables.shared
analysis.figures.registry slurm.submit slurm.profiles"""
CHECKED_TYPE = r"Annotated\[(\w+(?:\[[^]]*\])?), [^]]*\]"
NAPOLEON = Config(napoleon_use_rtype=False, napoleon_use_ivar=True)

project = html_title = "vitinit"
copyright = "2026 the vitinit authors, MIT licence"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
include_patterns = ["[A-Z]*.md", "[a-z]*/README.md", "results/reference/**.md", "docs/**.md"]
root_doc = "README"
CONTENTS = """
```{toctree}
:hidden:

Quick start <self>
Which initialisation? <results/reference/which-initialisation>
docs/use
docs/check
Add a method <initializers/README>
Grids and protocol <benchmark/README>
Running <runners/README>
Clusters <slurm/README>
Tables and figures <analysis/README>
Results <results/README>
Contributing <CONTRIBUTING>
Changes <CHANGELOG>
```

```{toctree}
:hidden:
:glob:
:caption: Tutorials

docs/tutorials/*
```

```{toctree}
:hidden:
:glob:
:caption: How to

docs/how-to/*
```

```{toctree}
:hidden:
:glob:
:caption: Studies

results/reference/README
results/reference/*/README
results/reference/board
```

```{toctree}
:hidden:
:glob:
:caption: Reference

docs/reference/*
```
"""

myst_heading_anchors = 4
smartquotes = False
default_role = "code"  # docstrings have `name` where reStructuredText has ``name``
toc_object_entries = False
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "model_config"}
autodoc_typehints_format = "short"

html_theme = "furo"
html_extra_path = ["index.html"]
html_copy_source = False
html_static_path = ["pages.css"]
html_css_files = ["pages.css"]
html_search_scorer = str(ROOT / "docs/search.js")
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Generate the reference pages, and read Google's docstring sections."""
    vars(vitinit).update({name: getattr(vitinit, name) for name in vitinit.__all__})  # names that load on first use
    app.connect("source-read", _completed)
    app.connect("autodoc-process-docstring", _google)
    app.connect("autodoc-process-signature", _short)


def _google(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Leave docstrings of attributes alone: Napoleon takes what stands before their first colon as a type."""
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, NAPOLEON, app, what, name, obj, options).lines()


def _short(
    app: Sphinx, what: str, name: str, obj: object, options: object, arguments: str | None, returns: str
) -> tuple:
    """Shorten names of types where Sphinx cannot read a default."""
    return arguments and re.sub(r"~[\w.]+\.|<function |(?<=<lambda>)>", "", arguments), returns


def _completed(app: Sphinx, page: str, text: list[str]) -> None:
    methods = (path for room in ("bases", "methods") for path in sorted(ROOT.glob(f"initializers/{room}/**/[!_]*.py")))
    generated = {
        root_doc: lambda: CONTENTS,
        "docs/reference/grid-file": _grid_file,
        "docs/reference/vitinit": lambda: _modules([""]),
        "docs/reference/plug-ins": lambda: _modules(PLUG_INS.split()),
        "docs/reference/records": lambda: _modules(["benchmark.records.record"]),
        "docs/reference/methods": lambda: _modules(
            ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in methods
        ),
    }
    if page in generated:
        text[0] += generated[page]()


def _modules(names: Iterable[str]) -> str:
    """Return a section for each module."""
    modules = [f"vitinit.{name}".rstrip(".") for name in names]
    return "\n".join(f"## `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n" for name in modules)


def _grid_file() -> str:
    parts: list[tuple[str, str, type[BaseModel]]] = [
        ("The file", "", GridFile),
        ("A row", "`base` and `method` take a name, or a mapping of a name and [its parameters](methods.md).", Row),
        ("A block", "", Block),
        (
            "A dataset",
            'A name, or a mapping of these. `{python: "my_data.py:MyData"}` names one of your own.',
            DatasetSpec,
        ),
        ("A recipe", "A name, or a mapping of a name and fields that replace those of the recipe.", Recipe),
        *((f"A model: `arch: {arch}`", family.__doc__ or "", family) for arch, family in families().items()),
    ]
    return "\n".join(f"## {title}\n\n{said}\n\n{_fields(of)}\n" for title, said, of in parts)


def _fields(of: type[BaseModel]) -> str:
    """Return a table of a schema's fields, with the text behind each in the source."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, field in of.model_fields.items():
        kind, meaning = "", ""
        for cls in of.__mro__:
            if not cls.__module__.startswith("vitinit."):
                continue
            source = ModuleAnalyzer.for_module(cls.__module__)
            source.analyze()
            kind = kind or re.sub(CHECKED_TYPE, r"\1", source.annotations.get((cls.__name__, name), ""))
            meaning = meaning or " ".join(source.find_attr_docs().get((cls.__name__, name), []))
        default = field.get_default(call_default_factory=True)
        shown = "" if default is PydanticUndefined else f"`{getattr(default, 'name', default)!r}`"
        lines.append(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{name}`", f"`{kind}`", shown, meaning)) + " |"
        )
    return "\n".join(lines)
