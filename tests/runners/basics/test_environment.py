"""Provenance, against git itself, hashes by hand and what torch says when asked directly."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import yaml

from vitinit.runners.basics import environment as provenance
from vitinit.runners.basics.environment import code_in, differences, environment, set_flags, shareable, tensor_floats
from vitinit.runners.basics.setting import Execution

THREADS = torch.get_num_threads()
FILES = {
    "initializers/method.py": "b = 2\n",
    "runners/basics/environment.py": "a = 1\n",
    "runners/cli/run.py": "help = 'text'\n",
    "benchmark/grids/small.yaml": "title: x\n",
    "tests/test_method.py": "d = 4\n",
    ".gitignore": "scratch/\n",
}


def git(folder, line):
    command = ["git", "-C", str(folder), *line.split()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A small house, committed."""
    root = tmp_path / "house"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init -q")
    git(root, "add .")
    git(root, "commit -qm one")
    return root


def test_only_what_can_change_a_number_is_a_change(checkout, monkeypatch):
    clean = code_in(checkout)
    hashed = "".join(f"{name}\0{len(text)}\0{text}" for name, text in list(FILES.items())[:2])
    source = hashlib.sha256(hashed.encode()).hexdigest()
    assert clean == {"commit": git(checkout, "rev-parse HEAD"), "dirty": False, "source": source}
    monkeypatch.setattr(provenance, "ROOT", checkout)
    assert provenance.source_of(clean["commit"]) == source
    lock = checkout / "initializers/.#method.py"  # of an editor
    lock.symlink_to("somebody@here.1")
    assert code_in(checkout)["source"] == source
    lock.unlink()
    (checkout / "scratch").mkdir()
    for name in ("runners/cli/run.py", "tests/test_method.py", "benchmark/grids/mine.yaml", "scratch/ignored.py"):
        (checkout / name).write_text("other text\n")
    assert code_in(checkout) == clean
    git(checkout, "add -A")
    git(checkout, "commit -qm two")
    assert differences(clean, code_in(checkout)) == {}, "another commit of the same code"
    for name in ("initializers/method.py", "initializers/neue Méthode\n.py"):
        before = code_in(checkout)
        (checkout / name).write_text("b = 3\n")
        assert differences(before, code_in(checkout)).keys() == {"dirty", "source"}
        git(checkout, "add -A")
        assert code_in(checkout)["dirty"] is True, "staged is not committed"
        git(checkout, "commit -qm three")
        assert code_in(checkout)["dirty"] is False


def test_somebody_elses_repository_is_not_ours_and_git_is_not_needed(checkout, tmp_path, monkeypatch):
    """Installed into an environment inside another project's checkout: its commit says nothing of this code."""
    other, ours = tmp_path / "project", code_in(checkout)
    shutil.copytree(checkout, other / ".venv/site-packages", ignore=shutil.ignore_patterns(".git"))
    (other / ".gitignore").write_text(".venv/\n")
    git(other, "init -q")
    git(other, "add .")
    git(other, "commit -qm theirs")
    alone = {"commit": None, "dirty": None, "source": ours["source"]}
    assert code_in(other / ".venv/site-packages") == alone
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert code_in(checkout) == {**alone, "git": "git status fails in this checkout"}
    monkeypatch.setenv("PATH", str(checkout / "empty"))
    assert code_in(checkout) == {**alone, "git": "git status fails in this checkout"}


def test_an_environment_is_what_torch_and_the_process_say(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    set_flags(Execution("cpu", THREADS, "inline"))  # whatever ran before
    before = environment("cpu", {"commit": "c" * 40, "dirty": False, "source": "5" * 64})
    cpuinfo = Path("/proc/cpuinfo")
    processors = re.findall(r"model name\s*: (.*)", cpuinfo.read_text() if cpuinfo.exists() else "")
    expected = (version("torch"), (*processors, platform.processor() or platform.machine())[0])
    assert (before["packages"]["torch"], before["processor"]) == expected
    assert before["cpu"]["capability"] == torch.backends.cpu.get_cpu_capability()
    assert before["gpu"] is before["cuda"] is before["cudnn"] is None
    assert before["argv"][0] == "vitinit"
    try:
        set_flags(Execution("cpu", THREADS + 1, "inline", deterministic=True))
        assert not torch.utils.deterministic.fill_uninitialized_memory, "it takes time"
        after = environment("cpu", {"commit": "d" * 40, "dirty": False, "source": "5" * 64, "argv": ["other"]})
    finally:
        set_flags(Execution("cpu", THREADS, "inline"))
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert after["argv"] == ["other"]
    assert differences(before, {**after, "of another version": 1}) == {
        "flags.threads": (THREADS, THREADS + 1),
        "flags.deterministic": (False, True),
        "flags.cudnn_deterministic": (False, True),
        "variables.CUBLAS_WORKSPACE_CONFIG": (None, ":4096:8"),
    }


def test_fp32_is_ieee_on_a_gpu_and_tf32_a_precision_of_its_own():
    def allowed():
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before = allowed()
    try:
        set_flags(Execution("cpu", THREADS, "inline"))
        assert allowed() == before, "of a GPU only: records of a CPU keep their flags"
        set_flags(Execution("cuda", THREADS, "inline"))
        for precision in ("fp32", "bf16", "tf32"):
            with tensor_floats(precision):
                assert allowed() == (precision == "tf32",) * 2
        assert allowed() == (False, False)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(("text", "said"), yaml.safe_load(Path(__file__).with_name("secrets.yaml").read_bytes()))
def test_a_failure_is_without_secrets_and_homes(text, said):
    assert shareable(text) == said
