"""The pages that `make docs` has built: all there, and readable without a network."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
PACKAGES = ("analysis", "benchmark", "initializers", "runners", "slurm")
"""Whose docstrings are in the pages."""


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    if not (SITE / "README.html").exists():
        pytest.skip("the pages are not built here: make docs")
    sources = [ROOT / "vitinit/__init__.py", *ROOT.glob("*.md"), *ROOT.glob("[a-z]*/*.md"), *ROOT.glob("docs/**/*.*")]
    sources += [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    newest = max([SITE / "README.html", *sources], key=lambda path: path.stat().st_mtime_ns)
    if newest in sources:
        pytest.skip(f"{newest.relative_to(ROOT)} has changed since the pages were built: make docs")
    return {str(path.relative_to(SITE)): path.read_text(encoding="utf-8") for path in SITE.rglob("*.html")}


def test_the_reference_has_the_public_names_and_every_base_and_method(pages):
    for name in (
        "vitinit.initializers.methods.mimetic.Mimetic",
        "vitinit.benchmark.spec.RunSpec",
        "vitinit.slurm.submit.submit",
    ):
        assert any(f'id="{name}"' in page for page in pages.values()), name
    page = pages["docs/reference/methods.html"]
    files = [path for room in ("bases", "methods") for path in (ROOT / "initializers" / room).rglob("[a-z]*.py")]
    assert len(files) > 6
    for path in files:
        assert ".".join(["vitinit", *path.relative_to(ROOT).with_suffix("").parts]) in page


def test_nothing_is_fetched_from_elsewhere(pages):
    fetched = r"<(?:script|img|iframe|source)[^>]*\bsrc=\"(?:https?:)?//[^>]*>|<link[^>]*\bhref=\"(?:https?:)?//[^>]*>"
    for name, page in pages.items():
        assert not re.findall(fetched, page), name
    for path in SITE.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)[ \"']*(?:https?:)?//", path.read_text(encoding="utf-8")), path


def test_the_search_has_the_texts_of_all_pages_on_a_disk(pages):
    texts = (SITE / "_static" / "texts.js").read_text(encoding="utf-8")
    assert all(f'"{name}": ' in texts for name in pages if name.endswith("README.html"))
    assert "texts.js" in pages["search.html"]
