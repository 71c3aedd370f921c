"""Provenance, against git itself, hashes by hand and what torch says when asked directly."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch

from tests.processes import fresh
from vitinit.runners.basics.environment import (
    blas,
    code_in,
    cpu_model,
    cpu_name,
    differences,
    driver_version,
    environment,
    gpu_usage,
    set_flags,
    tensor_floats,
)
from vitinit.runners.basics.setting import Execution

CPU = torch.device("cpu")


def git(folder, *arguments: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True, env=env
    )
    return done.stdout.strip()


@pytest.fixture
def plain_folder(tmp_path):
    """A small copy of the house, without git."""
    root = tmp_path / "house"
    for name, text in {
        "runners/basics/environment.py": "a = 1\n",
        "initializers/method.py": "b = 2\n",
        "benchmark/grids/small.yaml": "title: x\n",
        "analysis/tables/__main__.py": "c = 3\n",
        "README.md": "text\n",
        ".gitignore": "scratch/\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def checkout(plain_folder):
    git(plain_folder, "init", "-q")
    git(plain_folder, "add", ".")
    git(plain_folder, "commit", "-qm", "one")
    return plain_folder


def test_a_clean_checkout(checkout):
    found = code_in(checkout)
    assert found["commit"] == git(checkout, "rev-parse", "HEAD")
    assert (found["dirty"], found["diff"]) == (False, None)
    (checkout / "README.md").write_text("other text\n")
    (checkout / "notes.txt").write_text("no code\n")
    (checkout / "scratch").mkdir()
    (checkout / "scratch" / "ignored.py").write_text("d = 4\n")
    assert code_in(checkout) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("initializers/method.py", "b = 3\n"),
        ("analysis/tables/__main__.py", "c = 4\n"),
        ("initializers/neue Méthode\n.py", "e = 5\n"),
        ("initializers/method.py", None),
    ],
)
def test_changes_make_it_dirty_and_have_a_hash(checkout, name, text):
    clean = code_in(checkout)
    if text is None:
        (checkout / name).unlink()
        content = f"{name}\0gone\0"
    else:
        (checkout / name).write_text(text)
        content = f"{name}\0{len(text)}\0{text}"
    dirty = code_in(checkout)
    assert (dirty["commit"], dirty["dirty"]) == (clean["commit"], True)
    assert dirty["diff"] == hashlib.sha256(content.encode()).hexdigest()
    assert (dirty["source"] == clean["source"]) == name.startswith("analysis")
    if text is not None:
        (checkout / name).write_text(text + "# more\n")
        assert code_in(checkout)["diff"] not in (dirty["diff"], None)
    git(checkout, "add", "-A")
    assert code_in(checkout)["dirty"], "staged is not committed"
    git(checkout, "commit", "-qm", "two")
    assert (code_in(checkout)["dirty"], code_in(checkout)["diff"]) == (False, None)


def test_the_users_git_configuration_changes_nothing(checkout):
    (checkout / "initializers/method.py").rename(checkout / "initializers/other.py")
    before = code_in(checkout)
    for key, value in (("diff.noprefix", "true"), ("color.ui", "always"), ("diff.renames", "true")):
        git(checkout, "config", key, value)
    git(checkout, "add", "-A")
    assert code_in(checkout) == before


def test_the_source_hash_is_over_names_and_bytes(plain_folder):
    names = ("benchmark/grids/small.yaml", "initializers/method.py", "runners/basics/environment.py")
    parts = b""
    for name in names:
        content = (plain_folder / name).read_bytes()
        parts += f"{name}\0{len(content)}\0".encode() + content
    before = code_in(plain_folder)
    assert before == {"commit": None, "dirty": None, "diff": None, "source": hashlib.sha256(parts).hexdigest()}
    (plain_folder / "analysis/tables/__main__.py").write_text("nothing that trains\n")
    assert code_in(plain_folder) == before
    (plain_folder / "initializers/method.py").rename(plain_folder / "initializers/renamed.py")
    renamed = code_in(plain_folder)["source"]
    (plain_folder / "initializers/renamed.py").write_text("b = 7\n")
    assert len({before["source"], renamed, code_in(plain_folder)["source"]}) == 3


def test_somebody_elses_repository_is_not_ours(checkout, tmp_path):
    """Installed into an environment inside another project's checkout: its commit says nothing of this code."""
    other = tmp_path / "project"
    shutil.copytree(checkout, other / ".venv" / "site-packages", ignore=shutil.ignore_patterns(".git"))
    (other / ".gitignore").write_text(".venv/\n")
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "theirs")
    found = code_in(other / ".venv" / "site-packages")
    assert (found["commit"], found["dirty"]) == (None, None)
    assert found["source"] == code_in(checkout)["source"]


def test_what_git_cannot_say_is_left_open_and_a_hooks_environment_does_not_mislead(checkout, tmp_path, monkeypatch):
    found = code_in(checkout)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert code_in(checkout) == found
    monkeypatch.delenv("GIT_DIR")
    (checkout / ".git").rename(tmp_path / "away")
    git(checkout, "init", "-q")
    assert code_in(checkout)["commit"] is None, "no commit yet"
    monkeypatch.setenv("PATH", str(checkout / "empty"))
    assert code_in(checkout) == {"commit": None, "dirty": None, "diff": None, "source": found["source"]}


def test_environment_of_a_run_on_a_cpu(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/vitinit", "run", "small"])
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    code = {"commit": "c" * 40, "dirty": False, "diff": None, "source": "5" * 64}
    found = environment(CPU, code)
    assert {key: found[key] for key in code} == code
    assert found["packages"]["torch"] == version("torch") == torch.__version__.partition("+")[0]
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["argv"] == ["vitinit", "run", "small"]
    assert [found[key] for key in ("cuda", "cudnn", "driver", "gpu", "gpu_memory_gib")] == [None] * 5
    assert found["cpu"]["cores"] == os.cpu_count()
    assert found["cpu"]["capability"] == torch.backends.cpu.get_cpu_capability()
    assert found["cpu"]["memory_gib"] >= 1
    assert found["processor"]
    assert "slurm" not in found
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_gpu_has_its_libraries_settings_and_use_recorded(monkeypatch):
    """On a machine that may have none: torch's answers about the device are a test's."""
    assert "gpu_libraries" not in environment(CPU, {})
    assert gpu_usage(CPU, 4) == {}
    device = torch.device("cuda")
    properties = SimpleNamespace(total_memory=80 * 2**30)
    for name, answer in {
        "is_available": True,
        "is_initialized": True,
        "get_device_name": "a GPU",
        "get_device_properties": properties,
        "max_memory_allocated": 3 * 2**30,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92000)
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    found = environment(device, {})
    assert (found["gpu"], found["gpu_memory_gib"]) == ("a GPU", 80)
    assert found["gpu_libraries"]["nccl_variables"] == {"NCCL_ALGO": "Ring"}
    assert found["gpu_libraries"]["cudnn_attention"] == torch.backends.cuda.cudnn_sdp_enabled()
    assert {"hip", "triton", "nccl"} <= found["gpu_libraries"].keys()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    changed = {"gpu_libraries.nccl_variables.NCCL_ALGO": ("Ring", "Tree")}
    assert differences(found, environment(device, {})) == changed
    used = gpu_usage(device, 4)
    assert used == {"gpu_usage": {"peak_mib": 3072, "runs": 4}}
    assert differences({**found, **used}, found) == {}, "it is of the call"


def test_fp32_is_ieee_on_a_gpu_and_tf32_a_precision_of_its_own():
    def allowed():
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before = allowed()
    try:
        set_flags(Execution("cpu", torch.get_num_threads(), "inline"))
        assert allowed() == before, "of a GPU only: records of a CPU keep their flags"
        set_flags(Execution("cuda", torch.get_num_threads(), "inline"))
        assert allowed() == (False, False)
        for precision in ("fp32", "bf16", "tf32"):
            with tensor_floats(precision):
                assert allowed() == (precision == "tf32",) * 2
        assert allowed() == (False, False)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_deterministic_does_not_fill_memory_that_is_written_later():
    try:
        set_flags(Execution("cpu", torch.get_num_threads(), "inline", deterministic=True))
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    finally:
        set_flags(Execution("cpu", torch.get_num_threads(), "inline"))


def test_packages_that_bring_something_are_named(tmp_path, monkeypatch):
    alone = environment(CPU, {})["packages"]
    groups = ("initializers", "datasets", "models", "adapters")
    for group in groups:
        info = tmp_path / f"their_{group}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: their-{group}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[vitinit.{group}]\ntheirs = their_module:Theirs\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert environment(CPU, {})["packages"] == {**alone, **{f"their-{group}": "1.5" for group in groups}}


def test_flags_are_those_of_the_process(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = environment(CPU, {})
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        torch.set_num_threads(threads + 1)
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        monkeypatch.setenv("SLURM_JOB_ID", "4711")
        after = environment(CPU, {})
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = False
        torch.set_float32_matmul_precision(precision)
    assert after["slurm"] == {"job_id": "4711"}
    changed = differences(before, after)
    assert changed["flags.threads"] == (threads, threads + 1)
    assert changed["flags.deterministic"] == (False, True)
    assert changed["flags.cudnn_benchmark"] == (False, True)
    assert changed["flags.float32_matmul_precision"] == (precision, "high")
    assert changed["variables.CUBLAS_WORKSPACE_CONFIG"] == (None, ":4096:8")
    assert not [key for key in changed if not key.startswith(("flags.", "variables."))], "a job is no difference"
    assert differences(before, {**before, "argv": ["other"]}) == {}


def test_differences():
    a = {"commit": "1", "packages": {"torch": "2.6", "timm": "1.0"}, "list": [1, 2], "argv": ["x"], "zero": 0}
    b = {"commit": "2", "packages": {"torch": "2.7", "timm": "1.0"}, "list": [1, 3], "new": {"deep": True}, "zero": 0}
    assert differences(a, b) == {
        "commit": ("1", "2"),
        "list": ([1, 2], [1, 3]),
        "new.deep": (None, True),
        "packages.torch": ("2.6", "2.7"),
    }
    assert differences(a, a) == {}


def test_driver_version():
    old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Thu Oct 21 18:05:04 UTC 2021\nGCC version: 9\n"
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for {}  {}  Release Build  (dvs-builder@U16-I3-B14-4-3)\n"
    assert driver_version(old) == "470.82.01"
    assert driver_version(opened.format("x86_64", "550.54.15")) == "550.54.15"
    assert driver_version(opened.format("aarch64", "580.65.06")) == "580.65.06"
    assert driver_version("") is driver_version("GCC version:  gcc version 12.3.0\n") is None


XEON = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Processor @ 2.50GHz
stepping\t: 7
microcode\t: 0x1

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: of another core
"""
GRAVITON = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm aes
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1
"""


def test_the_processor_in_cpuinfo():
    assert (cpu_name(XEON), cpu_model(XEON)) == ("Intel(R) Xeon(R) Processor @ 2.50GHz", "GenuineIntel 6 85 7")
    assert (cpu_name(GRAVITON), cpu_model(GRAVITON)) == (None, "0x41 0xd0c 0x3 1")
    assert (cpu_name(""), cpu_model("")) == (None, None)


def test_the_matrix_library_in_torchs_configuration():
    mkl = (
        "PyTorch built with:\n  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product Build 20240605 for "
        "Intel(R) 64 architecture applications\n  - Build settings: BLAS_INFO=mkl, BUILD_TYPE=Release\n"
    )
    assert blas(mkl) == "mkl 2024.2"
    assert blas("  - Build settings: BLAS_INFO=open, BUILD_TYPE=Release\n") == "open"
    assert blas("  - Build settings: BUILD_TYPE=Release\n") is None


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_freed_memory_is_not_fetched_again(tmp_path):
    """Counted in page faults: without it 50 times eight tensors of 5 MB, freed together, are some 480,000 pages."""
    code = """
import resource
import torch
from vitinit.runners.basics.environment import set_flags
from vitinit.runners.basics.setting import Execution

set_flags(Execution(device="cpu", threads=1, executor="inline"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    together = [torch.ones(1_250_000) for _ in range(8)]
    del together
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    assert int(fresh("-c", code, cwd=tmp_path).stdout) < 50_000
