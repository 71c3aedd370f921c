"""The project as a whole: the workflow of CI, citation, changelog, and the words of docstrings."""

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
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


def test_the_help_of_make_is_in_columns_and_fits_80_of_them_and_the_short_one_leads_to_it():
    make = ["make", "--no-print-directory"]  # these tests may be run by make, and a make below it says so
    short, said = (
        subprocess.run([*make, target], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        for target in ("help", "help-all")
    )
    assert (len(short), any("make help-all" in line for line in short)) == (5, True)
    described = dict(re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [line.split()[1] for line in said] == list(described)
    assert len({len(line) - len(text) for line, text in zip(said, described.values(), strict=True)}) == 1
    assert max(map(len, said)) <= 80


def test_an_environment_that_was_made_in_another_folder_is_made_anew(tmp_path):
    """Its `activate` names the folder, in the ways of several versions of venv; `make -n` says what would be done."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml", "requirements-ffcv.lock"):
        (tmp_path / name).touch()
    activate, ready = tmp_path / ".venv/bin/activate", tmp_path / ".venv/.ready"
    activate.parent.mkdir(parents=True)
    ready.touch()
    for path, anew in ((tmp_path / ".venv", False), (Path("/elsewhere/.venv"), True)):
        for line in (f'VIRTUAL_ENV="{path}"', f"    export VIRTUAL_ENV={path}", f"VIRTUAL_ENV='{path}'"):
            activate.write_text(f"# of venv\n{line}\nexport VIRTUAL_ENV\n")
            done = subprocess.run(["make", "-n", "setup"], cwd=tmp_path, capture_output=True, text=True, check=True)
            assert ("rm -rf .venv" in done.stdout, "-m venv .venv" in done.stdout) == (anew, anew), line


def test_an_environment_remembers_its_cuda(tmp_path):
    """`make -n` says which lock would be installed; a variable of the user's shell decides nothing."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.lock", "requirements-cuda12.lock", "pyproject.toml", "requirements-ffcv.lock"):
        (tmp_path / name).touch()
    (tmp_path / ".venv").mkdir()

    def lock(*words: str) -> list[str]:
        command, env = ["make", "-n", "setup", *words], {**os.environ, "CUDA": "/usr/local/cuda"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
        return re.findall(r"--require-hashes -r (requirements(?:-cuda12)?\.lock)", done.stdout)

    assert (lock(), lock("CUDA=12")) == (["requirements.lock"], ["requirements-cuda12.lock"])
    (tmp_path / ".venv/.cuda").write_text("12\n")
    assert (lock(), lock("CUDA=13")) == (["requirements-cuda12.lock"], ["requirements.lock"])
    (tmp_path / ".venv/.ready-cuda12").touch()
    assert (lock(), lock("CUDA=13")) == ([], ["requirements.lock"])


def test_the_lock_of_cuda_12_differs_from_the_other_in_torch_alone():
    locks = [
        dict(re.findall(r"^([a-z0-9_.-]+)==(\S+)", (ROOT / f"requirements{name}.lock").read_text(), re.MULTILINE))
        for name in ("", "-cuda12")
    ]
    apart = {name for name in locks[0].keys() & locks[1].keys() if locks[0][name] != locks[1][name]}
    of_torch = re.compile(r"torch|torchvision|triton|cuda-.*|nvidia-.*")
    assert [name for name in apart ^ (locks[0].keys() ^ locks[1].keys()) if not of_torch.fullmatch(name)] == []
    assert "nvidia-cuda-runtime-cu12" in locks[1]
    assert "://" not in (ROOT / "requirements-cuda12.lock").read_text()


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


def test_timm_is_the_one_that_was_tried():
    """Augmentation and ConViT reach into it, so each of its versions may compute something else."""
    (floor,) = re.findall(r'"timm>=(.*)"', PYPROJECT)
    (locked,) = re.findall(r"^timm==(\S+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE)
    assert floor == locked


def _sentences(text: str) -> list[str]:
    """Sentences of a page, without code, tables, headings and what stands in parentheses; intervals are one word."""
    text = re.sub(r"```.*?```", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s|\||#)", text):
        if not paragraph.lstrip().startswith(("|", "#", "![", "<")):
            flat = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", " ".join(paragraph.split())))
            found += re.split(r"(?<=[.!?:;])\s+", re.sub(r"[+−]?[\d.]+, 95 % CI \S+ to \S+", "interval", flat))
    return found


def test_sentences_of_pages_have_at_most_30_words() -> None:
    places = ("README.md", "CONTRIBUTING.md", "[a-z]*/README.md", "docs/**/*.md", "results/reference/**/README.md")
    pages = [path for place in places for path in ROOT.glob(place)]
    assert len(pages) > 30
    long = [
        (str(page.relative_to(ROOT)), sentence)
        for page in pages
        for sentence in _sentences(page.read_text(encoding="utf-8"))
        if len(re.findall(r"\w\S*", sentence)) > 30
    ]
    assert long == []


PLAIN = ("analysis", "benchmark", "initializers", "runners", "slurm", "vitinit")
"""Packages whose docstrings begin with a verb or a noun."""


@pytest.mark.parametrize("package", PLAIN)
def test_docstrings_begin_with_what_a_thing_is_or_does(package: str) -> None:
    texts = [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.value.value.strip())
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    assert texts
    assert [text for text in texts if re.match(r"(What|Whether|Of|That|How|Where|Who)\b", text[1])] == []
