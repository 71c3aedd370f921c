"""Process that runs a submission's method and nothing else: `python -m runners.submissions.draw FOLDER`.

It reads FOLDER/job.json, gives up what it does not need (files outside FOLDER and Python's own, memory, time), imports
FOLDER/method.py, and writes the parameters of one model per seed. It never sees images, records or results.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path

import torch

from vitinit.benchmark.models.build import build_model
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers import registry
from vitinit.initializers.initialize import initialize
from vitinit.initializers.streams import derive, stream
from vitinit.runners.basics.environment import IMPORTED_FROM
from vitinit.runners.submissions.submission import OUT_OF_TIME

CREATE, ADD, RESTRICT = 444, 445, 446
"""System calls of Landlock, the same on every architecture."""
ALL, READ = (1 << 13) - 1, (1 << 0) | (1 << 2) | (1 << 3)
"""All rights on files that its first version knows; execute, read file and read folder."""


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


def landlock(readable: list[Path], writable: Path) -> bool:
    """Let this process read these paths and write below one, for good; False where the kernel cannot."""
    system = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.c_uint64(ALL)
    ruleset = system.syscall(CREATE, ctypes.byref(handled), ctypes.c_size_t(8), 0)
    if ruleset < 0:
        return False
    for path, rights in [*((path, READ) for path in readable), (writable, ALL)]:
        if path.exists():
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = rights if path.is_dir() else rights & ((1 << 0) | (1 << 1) | (1 << 2))
            system.syscall(ADD, ruleset, 1, ctypes.byref(_Rule(allowed, descriptor)), 0)
            os.close(descriptor)
    system.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    return bool(system.syscall(RESTRICT, ruleset, 0) == 0)


def confine(folder: Path, seconds: int, megabytes: int) -> list[str]:
    """Limit time, memory, the size of a file, and files; return what this system had."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds += int(used.ru_utime + used.ru_stime) + 1  # of importing
    signal.signal(signal.SIGXCPU, lambda *_: os._exit(OUT_OF_TIME))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    for kind, limit in (
        (resource.RLIMIT_FSIZE, megabytes * 2**20),
        (resource.RLIMIT_DATA, 8 * 2**30),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    # Not the folder above: datasets and results may lie beside the code.
    code = IMPORTED_FROM / "vitinit"
    ours = [path.resolve() for path in (code, *code.iterdir())]
    python = [Path(prefix) for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix}]
    system = [
        Path(path) for path in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom", "/proc/self")
    ]
    files = landlock([*ours, *python, *system, Path("/dev/null"), Path("/proc/cpuinfo")], folder)
    return ["cpu", "memory", "file size", *(["files"] if files else [])]


def main() -> None:
    """Entry point."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    spec = RunSpec.model_validate(job["spec"])
    base = registry.build(spec.base.name, spec.base.params, "base")
    torch.set_num_threads(1)
    build_model(spec.model, classes=job["classes"])  # imports what is slow
    had = confine(folder, job["seconds"], job["megabytes"])
    (folder / "limits.json").write_text(json.dumps(had))
    sys.path.append(str(folder))
    sys.dont_write_bytecode = True
    method = registry.build(f"method:{job['class']}", {}, "method")
    for seed in job["seeds"]:
        model = build_model(spec.model, classes=job["classes"])
        initialize(model, base, method, lambda name, seed=seed: stream(seed, name), measure=False)  # type: ignore[misc]
        tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        torch.save(tensors, folder / "starts" / f"{derive(seed, 'init/method')}.pt")


if __name__ == "__main__":
    main()
