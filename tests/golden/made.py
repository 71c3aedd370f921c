"""Goldens that depend on processor and torch: made from a commit, then compared with the working tree.

    python -m tests.golden.made make [--rev REV]
    python -m tests.golden.made compare [--rev REV] [--only 'alone/fp*'] [--only weights]

`make` writes .goldens/REV.json, which is for this machine only. `compare` prints every difference and exits with 1.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.golden import training

ROOT = Path(__file__).parents[2]
REV = "a9861da4"
CORES = 2


def main() -> None:
    """Make or compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.made", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("--rev", default=REV, help=f"commit whose code is the reference; default: {REV}")
    parser.add_argument("--only", action="append", help="glob: weights, alone/ROW, ...; repeatable")
    arguments = parser.parse_args()
    # sums depend on the number of threads, which is that of cores
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    rev = git("rev-parse", "--short=8", f"{arguments.rev}^{{commit}}").decode().strip()
    file = ROOT / ".goldens" / f"{rev}.json"
    if arguments.what == "make":
        with tempfile.TemporaryDirectory() as folder:
            unpack(rev, Path(folder))
            golden = {"machine": machine(), "training": taken(Path(folder), ["*"])}
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(golden, indent=1))
        print(f"{len(golden['training'])} entries of {rev}: {file.relative_to(ROOT)}")
        return
    if not file.is_file():
        sys.exit(f"error: there is no {file.relative_to(ROOT)}: make goldens REV={rev}")
    golden = json.loads(file.read_text())
    if golden.pop("machine") != machine():
        sys.exit(f"error: {file.relative_to(ROOT)} is of other grids, libraries or machine: make goldens REV={rev}")
    only = arguments.only or ["*"]
    found = taken(ROOT, only)
    chosen = {name: run for name, run in golden["training"].items() if any(fnmatch(name, f"{glob}/*") for glob in only)}
    different = list(differences(chosen, found))
    print("\n".join(different) or f"{len(found)} entries: as of {rev}")
    sys.exit(bool(different))


def taken(code: Path, only: list[str]) -> dict[str, Any]:
    """Carry out all runs and initialise all models, or those that globs choose, with the code in a folder."""
    runs: dict[str, Any] = {}
    for glob in only:
        runs |= training.taken(code, glob)
    if {"*", "weights"} & set(only):
        words = [sys.executable, "-m", "tests.golden.weights", "--exact"]
        with tempfile.TemporaryDirectory() as folder:
            where = {"cwd": folder, "env": training.environment(code, Path(folder))}
            said = subprocess.run(words, **where, check=True, stdout=subprocess.PIPE).stdout
        runs |= {f"weights/{name}": hashes for name, hashes in map(json.loads, said.splitlines())}
    return runs


def differences(golden: Any, found: Any, path: str = "") -> Iterator[str]:
    """Return differences, one line each; fields that the golden does not have are new, and pass."""
    if isinstance(golden, dict) and isinstance(found, dict):
        filled_in = isinstance(golden.get("spec"), dict) and golden["spec"]["recipe"]["optimizer"]["params"]
        for name, value in golden.items():
            if filled_in and name == "run_id":
                continue  # the hash of a recipe with such parameters: see below
            if path.endswith("recipe optimizer params") and name not in found:
                continue  # the optimiser's defaults are no longer filled in; what the grid gives is compared
            where = f"{path} {name}".strip()
            if name in found:
                yield from differences(value, found[name], where)
            else:
                yield f"{where}: is gone"
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        for place, (ours, theirs) in enumerate(zip(golden, found, strict=True)):
            yield from differences(ours, theirs, f"{path}[{place}]")
    elif golden != found:
        yield f"{path}: {str(golden)[:80]} became {str(found)[:80]}"


def unpack(rev: str, folder: Path) -> None:
    """Write the files of a commit, without its tests: those of this checkout are used."""
    archive = git("archive", rev, "--", ".", ":!tests")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def git(*words: str) -> bytes:
    """Output of a git command about this checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def machine() -> dict[str, str]:
    """Return what bits depend on beside the code, the grids themselves among it."""
    grids = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(training.GRIDS.iterdir()))).hexdigest()
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    libraries = {name: version(name) for name in ("torch", "timm", "torchvision", "numpy", "scipy", "pillow")}
    return {
        "processor": cpu.partition(":")[2].strip(),
        "python": platform.python_version(),
        **libraries,
        "grids": grids,
    }


if __name__ == "__main__":
    main()
