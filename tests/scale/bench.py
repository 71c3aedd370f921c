"""How long commands take, and how much memory, over a study of 10,000 runs: `make bench-scale`.

Seconds well above the processor's say that something else was running, and mean little. Each command runs in a process
of its own. This one imports nothing but the standard library, because the peak memory that the system reports for a
process is at least that of the one that started it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
VITINIT = ["-m", "vitinit.runners.cli"]
PLAN = ([*VITINIT, "plan", "scale.yaml"], 2.0)
STATUS = ([*VITINIT, "status", "scale.yaml"], 3.0)
TABLES = (["-m", "vitinit.analysis.tables", "--study", "scale"], 10.0)
FIGURES = (["-m", "vitinit.analysis.figures", "--study", "scale"], 10.0)
"""Arguments for Python, and the limit in seconds."""


def measure(arguments: list[str], folder: Path, expected: str) -> tuple[float, float, float]:
    """Run Python in the study's folder; wall time and processor time in seconds, and peak memory in MB.

    Raises:
        SystemExit: the command fails, or does not print what is expected.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "VITINIT_DATA": str(folder / "data"),
        "COLUMNS": "200",
    }
    with (folder / "output").open("w+", encoding="utf-8") as output:
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        _, exit_status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(exit_status)
        output.seek(0)
        text = output.read()
    if process.returncode or expected not in text:
        sys.exit(f"python {' '.join(arguments)}: exit code {process.returncode}\n...{text[-2000:]}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> int:
    """Build each study, time the commands, print them beside their limits; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description="Time vitinit over 10,000 synthetic records.")
    parser.add_argument("--epochs", type=int, default=20, help="of each record (default: 20)")
    epochs = parser.parse_args().epochs
    missed = 0
    print(f"10,000 runs, records of {epochs} epochs\n{'':44}{'seconds':>8}{'limit':>8}{'CPU s':>8}{'MB':>8}")
    for failed, to_do, counts in ((0, 0, "10000 done"), (500, 500, "9000 done, 500 failed, 500 to do")):
        with tempfile.TemporaryDirectory(prefix="vitinit-scale-") as name:
            folder = Path(name)
            options = ["--epochs", epochs, "--failed", failed, "--to-do", to_do]
            measure([str(ROOT / "tests" / "scale" / "study.py"), name, *map(str, options)], folder, "")
            shutil.rmtree(folder / "cache")
            print(counts)
            for title, (arguments, limit), expected in (
                ("vitinit plan, nothing kept of its models", (PLAN[0], None), counts),
                ("vitinit plan", PLAN, counts),
                ("vitinit status", STATUS, counts),
                ("python -m analysis.tables", TABLES, " as "),
                ("python -m analysis.figures", FIGURES, " figures in "),
            ):
                seconds, processor, megabytes = measure(arguments, folder, expected)
                over = limit is not None and seconds > limit
                missed += over
                shown = "-" if limit is None else f"{limit:.0f}"
                print(f"  {title:42}{seconds:8.2f}{shown:>8}{processor:8.2f}{megabytes:8.0f}", end="")
                print("  MISSED" if over else "", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
