"""Provenance, against git itself, hashes by hand and what torch says when asked directly."""

import hashlib
import json
import os
import shutil
import subprocess
from importlib.metadata import version

import pytest
import torch

from vitinit.runners.basics.environment import (
    blas,
    code_in,
    differences,
    driver_version,
    environment,
    set_flags,
    tensor_floats,
)
from vitinit.runners.basics.setting import Execution

CPU = torch.device("cpu")
THREADS = torch.get_num_threads()
FILES = {
    "runners/basics/environment.py": "a = 1\n",
    "runners/cli/run.py": "help = 'text'\n",
    "initializers/method.py": "b = 2\n",
    "benchmark/grids/small.yaml": "title: x\n",
    "analysis/tables/__main__.py": "c = 3\n",
    "tests/test_method.py": "d = 4\n",
    "README.md": "text\n",
    ".gitignore": "scratch/\n",
}
NUMERIC = ("initializers/method.py", "runners/basics/environment.py")


def git(folder, *arguments: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.strip()


def digest(contents: dict[str, str]) -> str:
    return hashlib.sha256("".join(f"{n}\0{len(text)}\0{text}" for n, text in contents.items()).encode()).hexdigest()


@pytest.fixture
def checkout(tmp_path):
    """A small house, committed."""
    root = tmp_path / "house"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root


def test_only_what_can_change_a_number_is_a_change(checkout):
    clean = code_in(checkout)
    source = digest({name: FILES[name] for name in NUMERIC})
    assert clean == {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False, "diff": None, "source": source}
    (checkout / "scratch").mkdir()
    for name in {*FILES, "mine.yaml", "benchmark/grids/mine.yaml", "scratch/ignored.py"} - {*NUMERIC, ".gitignore"}:
        (checkout / name).write_text("other text\n")
    assert code_in(checkout) == clean
    git(checkout, "add", "-A")
    git(checkout, "commit", "-qm", "two")
    assert differences(clean, code_in(checkout)) == {}, "another commit of the same code"


@pytest.mark.parametrize("name", ["initializers/method.py", "initializers/neue Méthode\n.py"])
def test_a_change_has_a_hash_until_it_is_committed(checkout, name, monkeypatch):
    clean = code_in(checkout)
    (checkout / name).write_text("b = 3\n")
    dirty = code_in(checkout)
    assert (dirty["commit"], dirty["dirty"], dirty["diff"]) == (clean["commit"], True, digest({name: "b = 3\n"}))
    assert differences(clean, dirty).keys() == {"dirty", "diff", "source"}
    git(checkout, "add", "-A")
    git(checkout, "config", "diff.noprefix", "true")
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))  # as a hook of another repository does
    assert code_in(checkout) == dirty, "staged is not committed"
    git(checkout, "commit", "-qm", "two")
    assert code_in(checkout)["dirty"] is False
    (checkout / name).unlink()
    assert code_in(checkout)["diff"] == hashlib.sha256(f"{name}\0gone\0".encode()).hexdigest()


def test_somebody_elses_repository_is_not_ours_and_git_is_not_needed(checkout, tmp_path, monkeypatch):
    """Installed into an environment inside another project's checkout: its commit says nothing of this code."""
    other, ours = tmp_path / "project", code_in(checkout)
    shutil.copytree(checkout, other / ".venv/site-packages", ignore=shutil.ignore_patterns(".git"))
    (other / ".gitignore").write_text(".venv/\n")
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "theirs")
    alone = {"commit": None, "dirty": None, "diff": None, "source": ours["source"]}
    assert code_in(other / ".venv/site-packages") == alone
    monkeypatch.setenv("PATH", str(checkout / "empty"))
    assert code_in(checkout) == alone


def test_an_environment_is_what_torch_and_the_process_say(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    code = {"commit": "c" * 40, "dirty": False, "diff": None, "source": "5" * 64}
    before = environment(CPU, code)
    assert before["packages"]["torch"] == version("torch")
    assert before["cpu"]["capability"] == torch.backends.cpu.get_cpu_capability()
    assert before["gpu"] is before["driver"] is None
    assert json.loads(json.dumps(before, allow_nan=False)) == before
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    try:
        set_flags(Execution("cpu", THREADS + 1, "inline", deterministic=True))
        assert not torch.utils.deterministic.fill_uninitialized_memory, "it takes time"
        after = environment(CPU, {**code, "argv": ["other"]})
    finally:
        set_flags(Execution("cpu", THREADS, "inline"))
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert after["slurm"] == {"job_id": "4711"}
    assert differences(before, after) == {
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


def test_versions_in_what_others_print():
    old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Thu Oct 21 18:05:04 UTC 2021\nGCC version: 9\n"
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build  (dvs-builder@U16)\n"
    assert [driver_version(text) for text in (old, opened, "GCC 12.3\n")] == ["470.82.01", "580.65.06", None]
    mkl = "  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605\n  - BLAS_INFO=mkl, X=1\n"
    assert [blas(text) for text in (mkl, "BLAS_INFO=open, X=1", "X=1")] == ["mkl 2024.2", "open", None]
