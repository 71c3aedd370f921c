"""The step of the workflow that takes one folder from a pull request, run as it is, and what the workflow trusts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HERE = "results/submissions/mine"


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    """Main, with one file and an older verdict."""
    (tmp_path / "results/submissions/old").mkdir(parents=True)
    (tmp_path / "results/submissions/old/verdicts.yaml").write_text("verdicts: []")
    (tmp_path / "code.py").write_text("ours")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "main")
    return tmp_path


def taken(trusted: Path, files: dict[str, str], link: str = "") -> tuple[int, str]:
    """Commit files on a branch, and call the step on main."""
    git(trusted, "checkout", "-qb", "theirs")
    for name, text in files.items():
        (trusted / name).parent.mkdir(parents=True, exist_ok=True)
        (trusted / name).write_text(text)
    if link:
        (trusted / link).symlink_to("/etc/passwd")
    git(trusted, "add", "-A")
    git(trusted, "commit", "-qm", "theirs")
    git(trusted, "checkout", "-q", "main")
    done = subprocess.run([ROOT / ".ci/submission", "theirs"], cwd=trusted, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def test_one_folder_is_taken_and_nothing_else_changes(trusted: Path) -> None:
    assert taken(trusted, {f"{HERE}/method.py": "x", f"{HERE}/claim.yaml": "y"}) == (0, HERE)
    assert (trusted / HERE / "method.py").read_text() == "x"
    assert (trusted / "code.py").read_text() == "ours"


@pytest.mark.parametrize(
    ("files", "link", "why"),
    [
        ({f"{HERE}/method.py": "x", "code.py": "theirs"}, "", "alone, and not code.py"),
        ({f"{HERE}/method.py": "x", "results/submissions/old/verdicts.yaml": "z"}, "", "alone, and not"),
        ({f"{HERE}/verdicts.yaml": "verdicts: [{answer: reproduced}]"}, "", "written by vitinit verify alone"),
        ({f"{HERE}/method.py": "x"}, f"{HERE}/claim.yaml", "link or a program"),
        ({"results/submissions/$(id)/method.py": "x"}, "", "letters, digits"),
        ({"code.py": "theirs"}, "", "is a folder results/submissions/NAME"),
    ],
)
def test_what_is_more_than_a_submission_is_refused(files: dict[str, str], link: str, why: str, trusted: Path) -> None:
    code, said = taken(trusted, files, link)
    assert code == 2
    assert why in said
    assert said.startswith("error: ")
    assert git(trusted, "status", "--porcelain") == "", "nothing is taken"


def test_a_pull_request_that_main_has_passed_is_fetched_and_taken(trusted: Path, tmp_path_factory) -> None:
    """By the lines of the workflow: with the history, or all that main has since would count as theirs."""
    git(trusted, "checkout", "-qb", "theirs")
    (trusted / HERE).mkdir()
    (trusted / HERE / "method.py").write_text("x")
    git(trusted, "add", "-A")
    git(trusted, "commit", "-qm", "theirs")
    git(trusted, "update-ref", "refs/pull/1/head", "HEAD")
    git(trusted, "checkout", "-q", "main")
    (trusted / "code.py").write_text("newer")
    git(trusted, "commit", "-qam", "main goes on")
    checkout = tmp_path_factory.mktemp("checkout") / "main"
    git(trusted, "clone", "-q", "--single-branch", trusted.as_uri(), str(checkout))
    (checkout / ".ci").symlink_to(ROOT / ".ci")
    flow = yaml.safe_load((ROOT / ".github/workflows/submission.yml").read_text())
    (step,) = (step for step in flow["jobs"]["verify"]["steps"] if "HEAD" in step.get("env", {}))
    words = ["bash", "-eo", "pipefail", "-c", step["run"]]
    environment = {**os.environ, "HEAD": step["env"]["HEAD"].replace("${{ github.event.pull_request.number }}", "1")}
    done = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, HERE), done.stderr


def test_the_workflow_checks_out_main_with_no_rights_and_no_token() -> None:
    text = (ROOT / ".github/workflows/submission.yml").read_text()
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in text
    (checkout,) = (step for step in flow["jobs"]["verify"]["steps"] if "checkout" in step.get("uses", ""))
    assert checkout["with"]["ref"] == "${{ github.event.pull_request.base.sha }}"
    assert checkout["with"]["persist-credentials"] is False
    assert "secrets." not in text
