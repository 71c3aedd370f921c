"""The pages of the documentation: the texts of this repository where they lie, and the docstrings."""

from __future__ import annotations

from sphinx.application import Sphinx

project = "vitinit"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

include_patterns = ["README.md", "[a-z]*/README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/reference/*.md"]
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
:caption: Reference

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
    """The README has no list of pages where it stands."""
    app.connect("source-read", _with_contents)


def _with_contents(app: Sphinx, page: str, text: list[str]) -> None:
    if page == root_doc:
        text[0] += CONTENTS
