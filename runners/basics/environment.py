"""Provenance: which code, which libraries, which machine, with which flags. Imports no torch before a run asks."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.initializers.plugins import GROUPS

if TYPE_CHECKING:
    import torch

    from vitinit.runners.basics.setting import Execution

ROOT = Path(__file__).resolve().parents[2]
IMPORTED_FROM = Path(__file__).parents[3]
"""Folder that holds the package `vitinit`."""
NUMERIC_PACKAGES = (
    *("initializers", "benchmark"),
    *(f"runners/{name}" for name in ("augmentation", "basics", "loaders", "one_run", "probes", "training")),
)
"""Folders whose code and YAML can change a number."""
LIBRARIES = ("vitinit", "torch", "torchvision", "timm", "numpy", "pillow", "scikit-learn", "scipy")
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "KMP_DETERMINISTIC_REDUCTION",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
"""Environment variables that choose kernels, precision or the order of summation; they are recorded where set."""
NCCL = "NCCL_"
"""Beginning of the variables of the library that adds gradients of several GPUs; they are recorded with a GPU."""
OF_THE_CALL = ("argv", "slurm", "changed_while_running", "gpu_usage")
"""Keys that differ between two runs without anything having changed."""


@cache
def code() -> dict[str, Any]:
    """The code of this process, taken once: files may change while a study runs, what is imported does not.

    Returns:
        commit: of the git checkout; None where there is none.
        dirty: whether code or YAML differs from the commit, new files included; None without git.
        diff: sha256 over the names and contents of the files that differ; None where none does.
        source: sha256 over the packages that can change a number; needs no git.
    """
    return code_in(ROOT)


def code_in(root: Path) -> dict[str, Any]:
    """Return the commit and state of the checkout at `root`, as `code` does."""
    found: dict[str, Any] = {"commit": None, "dirty": None, "diff": None, "source": source_hash(root)}
    try:
        # Installed into an environment that lies in somebody else's repository, its commit would say nothing of ours.
        git(root, "ls-files", "--error-unmatch", "--", Path(__file__).resolve().relative_to(ROOT).as_posix())
        top = Path(git(root, "rev-parse", "--show-toplevel").rstrip("\n"))
        commit = git(root, "rev-parse", "HEAD").strip()
        where = ("--", "*.py", "*.yaml")
        changed = git(top, "diff", "--name-only", "--no-renames", "-z", "HEAD", *where)
        new = git(top, "ls-files", "--others", "--exclude-standard", "-z", *where)
    except (OSError, subprocess.CalledProcessError):
        return found
    names = {name for name in (changed + new).split("\0") if name}
    return {**found, "commit": commit, "dirty": bool(names), "diff": _hash(top, names) if names else None}


def source_hash(root: Path = ROOT) -> str:
    """sha256 over the names and bytes of every Python and YAML file that can change a number."""
    names = set()
    for package in NUMERIC_PACKAGES:
        for path in (root / package).rglob("*"):
            if path.suffix in (".py", ".yaml"):
                names.add(path.relative_to(root).as_posix())
    return _hash(root, names)


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return its output.

    Raises:
        OSError, subprocess.CalledProcessError: there is no git, the folder is in no checkout, or git says no.
    """
    # A git hook sets GIT_DIR and the like, which would name another repository.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, check=True, env=env).stdout.decode(errors="surrogateescape")


def environment(device: torch.device, code: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance that a record stores, as it is in this process now.

    Args:
        device: that the run computes on.
        code: what `code()` said in the process that launched the study; its `argv` too, where that is another one.
    """
    import torch

    cuda = device.type == "cuda" and torch.cuda.is_available()  # a failure is recorded where there is none, too
    job = {key: os.environ[f"SLURM_{key.upper()}"] for key in _SLURM if f"SLURM_{key.upper()}" in os.environ}
    return {
        **code,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in LIBRARIES} | _plug_ins(),
        "platform": platform.platform(),
        "processor": device_name("cpu"),
        "cpu": {
            "model": this_cpu_model(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "cores": os.cpu_count(),
            "memory_gib": round(physical_memory() / 2**30),
        },
        "blas": blas(torch.__config__.show()),
        "cuda": torch.version.cuda if cuda else None,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "driver": driver_version(_read("/proc/driver/nvidia/version")) if cuda else None,
        "gpu": torch.cuda.get_device_name(device) if cuda else None,
        "gpu_memory_gib": round(torch.cuda.get_device_properties(device).total_memory / 2**30) if cuda else None,
        "flags": flags(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        **({"gpu_libraries": gpu_libraries()} if cuda else {}),
        **({"slurm": job} if job else {}),
        "argv": code.get("argv") or argv(),
    }


def physical_memory() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def device_name(device: str) -> str:
    """Return the name of the processor, or of the first GPU, as records have it; empty where there is no GPU."""
    if device == "cpu":
        return cpu_name(_read("/proc/cpuinfo")) or platform.processor() or platform.machine()
    import torch

    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else ""


def gpu_libraries() -> dict[str, Any]:
    """Return the libraries and settings that matter on a GPU only."""
    import torch

    return {
        "hip": torch.version.hip,
        "triton": _version("triton"),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else None,
        "nccl_variables": {name: os.environ[name] for name in sorted(os.environ) if name.startswith(NCCL)},
        "cudnn_attention": torch.backends.cuda.cudnn_sdp_enabled(),
    }


def gpu_usage(device: torch.device, runs: int) -> dict[str, Any]:
    """Return, for a record, the memory that this process has had of its GPU and the runs on it; empty on a CPU.

    Args:
        device: of the run.
        runs: number of runs that share the device.
    """
    import torch

    if device.type != "cuda" or not torch.cuda.is_initialized():
        return {}
    peak = torch.cuda.max_memory_allocated(device) / 2**20
    return {"gpu_usage": {"peak_mib": round(peak), "runs": runs}}


def argv() -> list[str]:
    """The command line of this process."""
    return ["vitinit", *map(encodable, sys.argv[1:])]


def encodable(text: str) -> str:
    """The text with what UTF-8 cannot hold (file names may be any bytes) as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt."""


def keep_freed_memory() -> None:
    """Let glibc keep up to 1 GiB of what was freed, in place of fetching it from the system again page by page.

    A step frees all that the next one needs. On two CPU cores a step of the smallest models takes 8 to 9 % less time.
    Where the C library is another one, nothing happens.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_TRIM_THRESHOLD, 2**30)
        library.mallopt(M_MMAP_THRESHOLD, 2**25)  # the most that it takes; larger tensors are fetched each time


def set_flags(execution: Execution) -> None:
    """Set threads, determinism, precision and memory of this process."""
    import torch

    keep_freed_memory()
    torch.set_num_threads(execution.threads)
    if execution.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when CUDA is first used
    torch.use_deterministic_algorithms(execution.deterministic)
    torch.backends.cudnn.deterministic = execution.deterministic
    # nothing here reads what it has not written
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if execution.device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # torch's default: convolutions
    if execution.compiled:
        from torch._inductor import config as inductor

        inductor.fallback_random = True  # dropout as without torch.compile, from the seeds of `train`


@contextmanager
def tensor_floats(precision: str) -> Iterator[None]:
    """Let a GPU round to TF32 where that is a run's precision; settings are as before when the context ends."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    if precision != "tf32":
        yield
        return
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def flags() -> dict[str, Any]:
    """Settings of torch in this process that can change the bits of a result."""
    import torch

    backends = torch.backends
    return {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "matmul_tf32": backends.cuda.matmul.allow_tf32,
        "matmul_bf16_reduction": backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "matmul_fp16_reduction": backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        "cudnn_tf32": backends.cudnn.allow_tf32,
        "cudnn_benchmark": backends.cudnn.benchmark,
        "cudnn_deterministic": backends.cudnn.deterministic,
        "flash_attention": backends.cuda.flash_sdp_enabled(),
        "efficient_attention": backends.cuda.mem_efficient_sdp_enabled(),
        "mkldnn": backends.mkldnn.is_available() and backends.mkldnn.enabled,
    }


def differences(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Compare two environments: the value in each, None where it has none, by dotted key.

    The command line and the job are left out: they differ without anything having changed.
    """
    first, second = flat(a), flat(b)
    keys = sorted(first.keys() | second.keys())
    return {key: (first.get(key), second.get(key)) for key in keys if first.get(key) != second.get(key)}


def flat(environment: dict[str, Any]) -> dict[str, Any]:
    """An environment with dotted keys, less what belongs to one call only."""
    found: dict[str, Any] = {}

    def walk(content: dict[str, Any], prefix: str) -> None:
        for key, value in content.items():
            if isinstance(value, dict):
                walk(value, f"{prefix}{key}.")
            else:
                found[prefix + key] = value

    walk({key: value for key, value in environment.items() if key not in OF_THE_CALL}, "")
    return found


def cpu_name(cpuinfo: str) -> str | None:
    """The processor's name in the text of /proc/cpuinfo, which not every architecture gives."""
    return _first_processor(cpuinfo).get("model name")


def this_cpu_model() -> str | None:
    """Vendor and numbers of this machine's processor, as records have them."""
    return cpu_model(_read("/proc/cpuinfo"))


def cpu_model(cpuinfo: str) -> str | None:
    """Vendor and numbers of the processor in the text of /proc/cpuinfo: virtual machines often hide its name."""
    processor = _first_processor(cpuinfo)
    x86 = [processor.get(key) for key in ("vendor_id", "cpu family", "model", "stepping")]
    arm = [processor.get(key) for key in ("CPU implementer", "CPU part", "CPU variant", "CPU revision")]
    return next((" ".join(filter(None, parts)) for parts in (x86, arm) if all(parts)), None)


def processor() -> list[str | None]:
    """Name, model and instructions of the processor, as far as the system tells."""
    cpuinfo = _read("/proc/cpuinfo")
    known = _first_processor(cpuinfo)
    return [cpu_name(cpuinfo), cpu_model(cpuinfo), known.get("flags") or known.get("Features")]


def driver_version(text: str) -> str | None:
    """The version in the text of /proc/driver/nvidia/version."""
    match = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return match and match.group(1)


def blas(configuration: str) -> str | None:
    """The matrix library in the text of `torch.__config__.show()`, with its version where it is MKL."""
    name = re.search(r"\bBLAS_INFO=(\w+)", configuration)
    mkl = re.search(r"Math Kernel Library Version (\S+?)(?:-Product)?\s", configuration)
    if name is None:
        return None
    return f"{name.group(1)} {mkl.group(1)}" if mkl and name.group(1) == "mkl" else name.group(1)


_SLURM = ("job_id", "array_job_id", "array_task_id", "job_partition")


def _hash(root: Path, names: set[str]) -> str:
    """sha256 over files: name, length and bytes, so that no two sets of files read alike."""
    digest = hashlib.sha256()
    for name in sorted(names):
        try:
            content = (root / name).read_bytes()
        except OSError:  # deleted since the commit, or a link that leads nowhere
            digest.update(f"{name}\0gone\0".encode(errors="surrogateescape"))
        else:
            digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()


def _plug_ins() -> dict[str, str]:
    """The versions of other people's packages that bring initialisers, datasets, models or adapters."""
    found = (entry.dist for group in GROUPS for entry in entry_points(group=group))
    return {dist.name: dist.version for dist in found if dist is not None}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _first_processor(cpuinfo: str) -> dict[str, str]:
    block = cpuinfo.partition("\n\n")[0]
    parts = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, _, value in parts}
