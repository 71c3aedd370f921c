"""The pages of the documentation: the texts of this repository where they lie, and the docstrings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

from vitinit.analysis.curves.registry import CURVES
from vitinit.analysis.figures.registry import FIGURES
from vitinit.benchmark.grids.schema import Block, GridFile, Row
from vitinit.benchmark.models.registry import families
from vitinit.benchmark.spec import DatasetSpec, Recipe

ROOT = Path(__file__).parents[1]
ANNOTATED = r"Annotated\[(\w+(?:\[[^]]*\])?), [^]]*\]"
"""A type and its checks, as the source has them."""

project = "vitinit"
copyright = "2026 the vitinit authors, MIT licence"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

include_patterns = [
    "README.md",
    "[a-z]*/README.md",
    "results/reference/README.md",
    "results/reference/*/README.md",
    "results/reference/board.md",
    "results/reference/which-initialisation.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/tutorials/*.md",
    "docs/how-to/*.md",
    "docs/reference/*.md",
]
root_doc = "README"
CONTENTS = """
```{toctree}
:hidden:

Quick start <self>
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
:caption: Tutorials

docs/tutorials/first-study
docs/tutorials/your-method
docs/tutorials/your-model
docs/tutorials/cluster
```

```{toctree}
:hidden:
:caption: How to

docs/use
docs/check
docs/how-to/install
docs/how-to/data-and-models
docs/how-to/training
docs/how-to/tables
docs/how-to/python
```

```{toctree}
:hidden:
:caption: Figures

docs/gallery
```

```{toctree}
:hidden:
:glob:
:caption: Studies

results/reference/README
results/reference/*/README
results/reference/board
results/reference/which-initialisation
```

```{toctree}
:hidden:
:caption: Reference

docs/reference/grid-file
docs/reference/vitinit
docs/reference/initializers
docs/reference/methods
docs/reference/benchmark
docs/reference/records
docs/reference/analysis
docs/reference/slurm
```
"""

myst_heading_anchors = 4
default_role = "code"  # docstrings have `name` where reStructuredText has ``name``
toc_object_entries = False  # files are enough
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "model_config"}  # pydantic's own
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "vitinit"
html_extra_path = ["index.html"]
html_copy_source = False
html_static_path = ["pages.css"]
html_css_files = ["pages.css"]
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """The README has no list of pages where it stands, and no page lists the files of methods."""
    app.connect("source-read", _completed)
    app.connect("html-page-context", _with_texts)
    app.connect("build-finished", _write_texts)


def _completed(app: Sphinx, page: str, text: list[str]) -> None:
    if page == root_doc:
        text[0] += CONTENTS
    if page == "docs/reference/methods":
        text[0] += "\n".join(_section(path) for room in ("bases", "methods") for path in _files(room))

    if page == "docs/reference/grid-file":
        text[0] += _grid_file()
    if page == "docs/gallery":
        text[0] += _gallery()


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
            kind = kind or re.sub(ANNOTATED, r"\1", source.annotations.get((cls.__name__, name), ""))
            meaning = meaning or " ".join(source.find_attr_docs().get((cls.__name__, name), []))
        default = field.get_default(call_default_factory=True)
        shown = "" if default is PydanticUndefined else f"`{getattr(default, 'name', default)!r}`"
        lines.append(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{name}`", f"`{kind}`", shown, meaning)) + " |"
        )
    return "\n".join(lines)


def _gallery() -> str:
    text = ""
    for path in sorted(ROOT.glob("results/reference/*/figures/*.png")):
        study, name = path.parts[-3], path.stem.partition("-")[0]
        module = "figures" if name in FIGURES.by_name() else "curves"
        drawing = (FIGURES if module == "figures" else CURVES).get(name)
        text += f"""
## `{name}` of [{study}](../results/reference/{study}/README.md)

![{name} of {study}](../{path.relative_to(ROOT)})

{drawing.caption}

```
python -m analysis.{module} --results results/reference --study {study} --figure {name}
```
"""
    return text


def _with_texts(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Load the texts of all pages on the search page alone."""
    if page == "search":
        app.add_js_file("texts.js", priority=100)


def _write_texts(app: Sphinx, error: Exception | None) -> None:
    """Write what the search makes its snippets of: a page that lies on a disk may fetch no other."""
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    pages = {f"{page}.html": (out / f"{page}.html").read_text(encoding="utf-8") for page in app.env.found_docs}
    mains = {name: re.search(r"<article.*?</article>", text, re.DOTALL) for name, text in pages.items()}
    texts = {name: main[0] for name, main in mains.items() if main}
    script = (ROOT / "docs" / "search.js").read_text(encoding="utf-8")
    (out / "_static" / "texts.js").write_text(f"const TEXTS = {json.dumps(texts)};\n{script}", encoding="utf-8")


def _files(room: str) -> list[Path]:
    return sorted(path for path in (ROOT / "initializers" / room).rglob("*.py") if path.stem != "__init__")


def _section(path: Path) -> str:
    module = ".".join(["vitinit", *path.relative_to(ROOT).with_suffix("").parts])
    return f"""
## `{module}`

```{{eval-rst}}
.. automodule:: {module}
   :members:
   :show-inheritance:
```
"""
