"""Provenance: which code, which libraries, which machine, with which flags. Imports no torch before a run asks."""

import ctypes
import glob
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from vitinit.benchmark.settings import flatten
from vitinit.initializers.plugins import GROUPS

if TYPE_CHECKING:
    from vitinit.runners.basics.setting import Execution

ROOT = Path(__file__).resolve().parents[2]
IMPORTED_FROM = Path(__file__).parents[3]
"""Folder that holds the package `vitinit`."""
NUMERIC_PACKAGES = (
    "initializers benchmark runners/augmentation runners/basics runners/loaders runners/one_run runners/probes "
    "runners/training"
)
"""Folders whose code and YAML can change a number."""
NOT_NUMERIC = "benchmark/grids/", "benchmark/recipes/"
"""Less these: what a grid comes to is the spec of a run, which every record holds."""
LIBRARIES = "vitinit torch torchvision timm numpy pillow scikit-learn scipy"
VARIABLES = (
    "ATEN_CPU_CAPABILITY CUBLAS_WORKSPACE_CONFIG KMP_DETERMINISTIC_REDUCTION MKL_CBWR MKL_NUM_THREADS "
    "NVIDIA_TF32_OVERRIDE OMP_NUM_THREADS ONEDNN_MAX_CPU_ISA TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
)
"""Environment variables that choose kernels, precision or the order of summation; they are recorded where set."""
CPUINFO = Path("/proc/cpuinfo")
"""Linux's description of the processors."""
CHANGES = "changed_while_running"
"""Key where something changed between two sessions of a run: its bits cannot be promised then."""
OF_THE_CALL = "argv", "git", "slurm", CHANGES, "gpu_usage"
"""Keys that differ between two runs without anything having changed."""


def code_in(root: Path = ROOT) -> dict[str, Any]:
    """The code that can change a number.

    Returns:
        commit: of the git checkout; None where there is none.
        dirty: whether that code differs from the commit, new files included; None without git.
        source: sha256 over all of it; needs no git.
        git: why commit and dirty are not known in a checkout; absent elsewhere.
    """
    code: dict[str, Any] = {"commit": None, "dirty": None, "source": source_hash(root)}
    if not (root / ".git").exists():  # that of somebody else around it says nothing
        return code

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="surrogateescape")

    try:
        code["commit"] = git("rev-parse", "HEAD").strip()
        changed = git(
            "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z", "--", *NUMERIC_PACKAGES.split()
        )
        code["dirty"] = any(_numeric(line[3:]) for line in changed.split("\0"))
    except (OSError, subprocess.CalledProcessError):
        code["git"] = "git status fails in this checkout"  # it is another user's, or there is no git on this machine
    return code


code = cache(code_in)
"""State of the code, taken once a process: files may change while a study runs."""


@cache
def source_of(commit: str | None) -> str | None:
    """Return the hash of the code that can change a number, as a commit of this repository has it; None without one."""
    if not re.fullmatch("[0-9a-f]{40}", str(commit)):  # a branch is here whatever was run
        return None
    with TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "archive", f"--output={folder}/code.tar", str(commit)]
        git += [".", ":(exclude)results", ":(exclude)tests"]  # old commits lack some of the packages
        if subprocess.run(git, capture_output=True).returncode:
            return None
        shutil.unpack_archive(f"{folder}/code.tar", folder)
        return source_hash(Path(folder))


def source_hash(root: Path = ROOT) -> str:
    """sha256 over the names, lengths and bytes of every Python and YAML file that can change a number."""
    digest = hashlib.sha256()
    # an editor's lock of a file is a link that leads nowhere
    files = (path for name in NUMERIC_PACKAGES.split() for path in (root / name).rglob("*") if path.is_file())
    for name in sorted(filter(_numeric, (path.relative_to(root).as_posix() for path in files))):
        content = (root / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()


def _numeric(name: str) -> bool:
    return name.endswith((".py", ".yaml")) and not name.startswith(NOT_NUMERIC)


def environment(device: str, code: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance that a record stores, as it is in this process now.

    Args:
        device: that the run computes on.
        code: what `code()` said in the process that launched the study; its `argv` too, where that is another one.
    """
    import torch

    on_gpu = device.startswith("cuda") and torch.cuda.is_available()  # a failure is recorded where there is none, too
    plug_ins = {entry.dist for group in GROUPS for entry in entry_points(group=group) if entry.dist}
    return {
        **code,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in LIBRARIES.split()}
        | {dist.name: dist.version for dist in plug_ins},
        "platform": platform.platform(),
        "processor": device_name("cpu"),
        "cpu": {
            # virtual machines often hide its name
            "model": cpu_model(),
            "capability": torch.backends.cpu.get_cpu_capability(),
        },
        "cuda": torch.version.cuda if on_gpu else None,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,
        "gpu": device_name(device) if on_gpu else None,
        "flags": flags(),
        "variables": {name: os.environ[name] for name in VARIABLES.split() if name in os.environ},
        "argv": code.get("argv") or argv(),
    }


def device_name(device: str) -> str:
    """Return the name of the processor, or of the first GPU, as records have it; empty where there is no GPU."""
    if device == "cpu":
        return cpuinfo("model name") or platform.processor() or platform.machine()
    import torch

    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else ""


def cpu_model() -> str | None:
    """Return vendor, family, model and stepping of the processor, as records have them; None where Linux hides them."""
    return cpuinfo("vendor_id|cpu family|model|stepping") or None


def argv() -> list[str]:
    """The command line of this process."""
    return ["vitinit", *map(shareable, sys.argv[1:])]


SECRET = re.compile(
    r"""(?<=://)[^\s"'@/:]*:[^\s"'?#]+(?=@)"""
    r"""|(?:(?<=PRIVATE KEY-----)|(?<=KEY BLOCK-----)|(?<=Private-Lines: ))"""
    r"""[\w\s+/=:,\\-]+?(?=-----END|Private-MAC|\Z)"""
    r"""|(?:(?<=cookie)|(?<=cookies))["']?\s*[=:][^\r\n]+"""
    r"""|((?<=://)(?=[^\s/@]+@)|\bbearer\s+|authorization["']?[\s=:]+["']?(\w+\s+)?"""
    r"""|\b(?:hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA|AIza|eyJ|npm_|pypi-|dckr_pat_|ya29\."""
    r"""|AGE-SECRET-KEY-|hooks\.slack\.com/services/)(?=\S{12})"""
    r"""|(?:password|passwd|passphrase|\bpass|\bpwd|secret|credential|(?:api|account|access|shared|private)[_-]?key"""
    r"""|(?:access|auth|api|hf)[_-]?token|[?&"'-]token|-signature|[?&]sig)\w*["']?\s*[=:]\s*["']?"""
    r"""|--[\w-]*(?:password|token|secret|key)\s+|\bsshpass\s+-p\s*|\s(?:-u|--user)\s+[^\s:]+:"""
    r"""|(?:password|passwd|passphrase)\s+(?:is\s+)?["']?(?!(?:is|of|for|in|not|or|and|to|was|from|file|required)\b)"""
    r"""|(?:key|token|secret|credential)s?\s+(?:is\s+)?["']?(?=[\w+/=-]{16,}(?![\w.]))(?=\S*\d))"""
    r"""(?:(?<=["'])[^"'\r\n]+(?=["'])|[^\s"'@&,;]+)""",
    re.IGNORECASE,
)
"""Words before a secret, and the secret."""
_FOLDER = r"[^\s/\"':,()]+/"
_HOME = r"[^\s/\"':,()]+(?: [^\s/\"':,()]+){0,2}/"
"""Its name may be that of a person."""
FOLDERS = re.compile(
    r"(?:(?<![\w./~-])|(?<=file://))/"
    rf"(?:(?:home|Users)/{_HOME}(?:(?:{_FOLDER})*(?={_FOLDER}))?|(?:{_FOLDER})+(?={_FOLDER}))"
    r"""|(?:\b[A-Za-z]:|\\)[\\/]+(?:[^\s\\/"':,()]+(?: [^\s\\/"':,()]+){0,2}[\\/]+)+"""
)
"""Folders of an absolute path, but for the last one; of a home, its name too; all of them in a path of Windows."""


def shareable(text: str) -> str:
    """Return a text as a record may hold it: without passwords, tokens and folders of this machine.

    What UTF-8 cannot hold (file names may be any bytes) is escaped.
    """
    text = text.replace(f"{Path.cwd()}/", "").replace("/proc/self/cwd/", "")
    return FOLDERS.sub("…/", SECRET.sub(r"\1…", text)).encode("utf-8", "backslashreplace").decode()


def set_flags(execution: "Execution") -> None:
    """Set threads, determinism, precision and memory of this process."""
    import torch

    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # of glibc; -1 is M_TRIM_THRESHOLD, -3 M_MMAP_THRESHOLD
        # Keep up to 1 GiB of what was freed, in place of fetching it from the system again page by page: on two CPU
        # cores a step of the smallest models, which frees all that the next one needs, takes 8 to 9 % less time.
        library.mallopt(-1, 2**30)
        library.mallopt(-3, 2**25)  # the most that it takes; larger tensors are fetched each time
    torch.set_num_threads(execution.threads)
    if execution.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when CUDA is first used
    torch.use_deterministic_algorithms(execution.deterministic)
    torch.backends.cudnn.deterministic = execution.deterministic
    # no uninitialised memory is read
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if execution.device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # torch's default: convolutions


@contextmanager
def tensor_floats(precision: str) -> Iterator[None]:
    """Let a GPU round to TF32 where that is a run's precision; settings are as before when the context ends."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    if precision == "tf32":
        matmul.allow_tf32 = cudnn.allow_tf32 = True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def flags() -> dict[str, Any]:
    """Settings of torch in this process that can change the bits of a result."""
    import torch

    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return {
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_tf32": cuda.matmul.allow_tf32,
        "cudnn_tf32": cudnn.allow_tf32,
        "cudnn_benchmark": cudnn.benchmark,
        "cudnn_deterministic": cudnn.deterministic,
    }


def differences(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Compare two environments: the value in each by dotted key, of the facts that both state.

    An environment variable that one does not have is None there. The command line and the job are left out: they differ
    without anything having changed. So is the commit where the code that can change a number is the same.
    """
    first, second = (flatten({key: facts[key] for key in facts if key not in OF_THE_CALL}) for facts in (a, b))
    keys = first.keys() & second.keys() | {key for key in {**first, **second} if key.startswith("variables.")}
    if first.get("source") and first.get("source") == second.get("source"):
        keys -= {"commit", "dirty"}
    return {key: (first.get(key), second.get(key)) for key in sorted(keys) if first.get(key) != second.get(key)}


def cpuinfo(names: str) -> str:
    """Return /proc/cpuinfo's value of the first processor under these names, a regular expression; empty without it."""
    block = CPUINFO.read_text(errors="replace").partition("\n\n")[0] if CPUINFO.is_file() else ""
    return " ".join(re.findall(rf"^(?:{names})\s*: (.*)", block, re.MULTILINE))


GPU_FILES = "/dev/nvidia*", "/dev/nvhost*", "/dev/dxg", "/dev/kfd"
"""Under Linux one of these is there wherever torch can find a GPU: NVIDIA's, a Jetson's, that of WSL, AMD's."""

NVIDIA_GPU = "/dev/nvidia[0-9]*"
"""One file for each NVIDIA GPU whose driver is loaded."""


def cores() -> int:
    """Cores that this process may use: fewer than the machine has inside a container or a cluster job."""
    return len(usable_cores())


def usable_cores() -> tuple[int, ...]:
    """Their numbers."""
    return tuple(sorted(os.sched_getaffinity(0) if sys.platform == "linux" else range(os.cpu_count() or 1)))


def several() -> bool:
    """Return True if this process was started as one of several, by its environment variables."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def lacks_compiler(device: str) -> str:
    """Return what torch.compile lacks here, a C++ compiler for a CPU, a C compiler for a GPU; empty if it is here."""
    variable, usual = ("CXX", "g++") if device == "cpu" else ("CC", "gcc")
    name = os.environ.get(variable, usual)
    return "" if shutil.which(name) else f"torch.compile needs {name}, or another compiler that {variable} names"


def gpu_possible() -> bool:
    """Return True if torch could find a GPU here, without asking torch."""
    return sys.platform != "linux" or any(map(glob.glob, GPU_FILES))


def gpu_slots() -> list[str]:
    """Return, for each GPU that torch finds, the value of CUDA_VISIBLE_DEVICES that shows a process this one alone."""
    if not gpu_possible():
        return []
    import torch

    number = torch.cuda.device_count()  # of what is visible, and makes no context on a GPU
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(number)))
    return [name.strip() for name in names.split(",")][:number]


def default_device() -> str:
    """`cuda` where torch finds a GPU, else `cpu`. Where there is no driver, torch is not asked."""
    if not gpu_possible():
        return "cpu"
    import torch

    with warnings.catch_warnings():  # `unseen_gpu` says why
        warnings.simplefilter("ignore")
        return "cuda" if torch.cuda.is_available() else "cpu"


def unseen_gpu() -> str:
    """Return why torch does not see an NVIDIA GPU that is here, and what to do; empty where none is passed over.

    GPUs hidden by CUDA_VISIBLE_DEVICES are ignored.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    if hidden or not glob.glob(NVIDIA_GPU) or default_device() == "cuda":  # noqa: PTH207 (no folder)
        return ""
    return (
        "torch does not see the NVIDIA GPU of this machine, whose driver nvidia-smi shows: CUDA 13 needs 580 or newer; "
        "make setup CUDA=12 is for drivers from 525 on"
    )
