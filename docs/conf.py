"""Configuration of the documentation: the repository's texts where they lie, and the docstrings of the public names."""

from __future__ import annotations

import pydoc
import re
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import desc_annotation
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

import vitinit

ROOT = Path(__file__).parents[1]
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
:caption: Whole scripts

docs/examples/*
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
    """Complete the pages, and read Google's docstring sections."""
    vars(vitinit).update({name: getattr(vitinit, name) for name in vitinit.__all__})  # names that load on first use
    app.connect("source-read", _completed)
    app.connect("autodoc-process-docstring", _google)
    app.connect("autodoc-process-signature", _short)
    app.connect("doctree-read", _plain_types)


def _google(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Add defaults to fields, whose docstrings Napoleon would take for types up to their first colon."""
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, NAPOLEON, app, what, name, obj, options).lines()
        return
    owner, _, attribute = name.rpartition(".")
    field = getattr(pydoc.locate(owner), "model_fields", {}).get(attribute)
    if field and not field.is_required():
        lines += ["", f"Default: ``{field.get_default(call_default_factory=True)!r}``"]


def _short(
    app: Sphinx, what: str, name: str, obj: object, options: object, arguments: str | None, returns: str
) -> tuple:
    """Shorten names of types where Sphinx cannot read a default; a model's fields are listed below it."""
    if hasattr(obj, "model_fields"):
        return "", returns
    return arguments and re.sub(r"~[\w.]+\.|<function |(?<=<lambda>)>", "", arguments), returns


def _plain_types(app: Sphinx, page: nodes.document) -> None:
    """Show the type of a field without its validators, and no value of a registry."""
    for shown in page.findall(desc_annotation):
        text = shown.astext()
        plain = re.sub(r"Annotated\[((?:[^,\[\]]|\[[^]]*\])+), .*?\)\](?=$|[\],]| \|)|= Registry\(.*", r"\1", text)
        if plain != text:
            shown[:] = [nodes.Text(plain)]


def _completed(app: Sphinx, page: str, text: list[str]) -> None:
    """Add the contents to the first page, and a section for each file to that of bases and methods."""
    if page == root_doc:
        text[0] += CONTENTS
    for room in ("bases", "methods") if page == "docs/reference/methods" else ():
        for path in sorted(ROOT.glob(f"initializers/{room}/**/[!_]*.py")):
            name = ".".join(("vitinit", *path.relative_to(ROOT).with_suffix("").parts))
            text[0] += f"\n## `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n```\n"
