"""What says something of the project as a whole: the workflow of CI, how to cite it, what has changed."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def stated(key: str) -> str:
    """A string of pyproject.toml; Python 3.10 cannot read it otherwise."""
    return re.search(rf'^{key} = "(.*)"$', PYPROJECT, re.MULTILINE)[1]


def workflow() -> dict[str, Any]:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    return job


def test_the_workflow_runs_targets_that_exist():
    commands = [step["run"] for step in workflow()["steps"] if "run" in step]
    assert commands == ["make setup", "make check", "make docs", "make test", "make bench-smoke"]
    makefile = (ROOT / "Makefile").read_text()
    for command in commands:
        assert re.search(rf"^{command.removeprefix('make ')}:", makefile, re.MULTILINE), command


def test_the_workflow_begins_with_the_oldest_python_that_is_supported():
    versions = workflow()["strategy"]["matrix"]["python"]
    assert all(isinstance(version, str) for version in versions), "3.10 without quotes is 3.1"
    oldest, newest = versions
    assert stated("requires-python") == f">={oldest}"
    assert tuple(map(int, newest.split("."))) > tuple(map(int, oldest.split(".")))


def test_the_citation_names_this_version_and_the_papers_of_the_readme():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (str(citation["version"]), citation["license"]) == (stated("version"), stated("license"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation), "what the format requires"
    papers = [entry["identifiers"][0]["value"].removeprefix("arXiv:") for entry in citation["references"]]
    last = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[-1]
    assert papers == re.findall(r"\d{4}\.\d{5}", last)


def test_the_changelog_has_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.*?)\]", changelog, re.MULTILINE)
    assert versions[:2] == ["Unreleased", stated("version")]
    kinds = set(re.findall(r"^### (.*)", changelog, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
