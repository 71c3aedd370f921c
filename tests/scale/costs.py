"""Costs of asking, beside a plain script of the same work: `make bench-costs`, with nothing else running."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
VITINIT = ("-m", "vitinit.runners.cli")
STEP = """
import os, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
from vitinit.runners.cli.__main__ import main

root, entered, importing = os.path.realpath(os.environ["PYTHONPATH"]) + "/", set(), []

def called(frame, event, _):
    code = frame.f_code
    if code.co_name == "<module>":
        importing.append(code) if event == "call" else importing.pop() if event == "return" else None
    elif not importing and code.co_filename.startswith(root) and "site-packages" not in code.co_filename:
        entered.add(os.path.realpath(code.co_filename))

def stepped(optimizer, *_):
    if sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"]) > 100:  # no trial
        print(len(entered) or "", file=sys.stderr)
        os._exit(0)

register_optimizer_step_post_hook(stepped)
if sys.argv.pop() == "count":
    sys.setprofile(called)
main()"""
"""Ends at the first optimiser step. A file is entered where one of its functions is called, imports aside."""
PAIRS = yaml.safe_load(Path(__file__).with_name("costs.yaml").read_bytes())
"""Ours and a plain script, as arguments of Python."""


def spent(arguments, folder):
    """CPU seconds of a command and its children, and the gigabytes of the largest process."""
    with (folder / "said").open("w") as said:
        process = subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{arguments}: {(folder / 'said').read_text()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6


def until(happened, arguments, folder):
    """Seconds from a command's start until something has happened, or it has ended."""
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, *arguments], cwd=folder, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not happened():
            time.sleep(0.02)
        seconds = time.perf_counter() - start
        process.send_signal(signal.SIGTERM)
    return seconds


def main():
    """Print the table."""
    os.environ["PYTHONPATH"] = str(ROOT)
    folder = Path(tempfile.mkdtemp())
    (folder / "results").mkdir()
    (folder / "results/reference").symlink_to(ROOT / "results/reference")
    print(f"{'ours | plain':50} CPU seconds, gigabytes")
    for name, pair in PAIRS.items():
        (ours, memory), (plain, usual) = (spent(arguments, folder) for arguments in pair)
        shown = f"{ours:7.1f} s | {plain:5.1f} s = {ours / plain:4.1f}"
        print(f"{name:50} {shown}, {memory:4.1f} GB | {usual:4.1f} GB = {memory / usual:3.1f}", flush=True)
    smoke = ("run", "smoke", "--device", "cpu", "--executor")
    step = until(lambda: False, ("-c", STEP, *smoke, "inline", "time"), folder)
    print(f"{'from the command to the first step, inline':50} {step:7.1f} s")
    count = subprocess.run([sys.executable, "-c", STEP, *smoke, "inline", "count"], cwd=folder, capture_output=True)
    print(f"{'files of ours entered on that way':50} {count.stderr.split()[-1].decode():>7}")
    local = folder / "results/local/smoke"
    shutil.rmtree(local, ignore_errors=True)
    first = until(
        lambda: any(local.glob("????????????????.json")), (*VITINIT, *smoke, "local", "--workers", "2"), folder
    )
    print(f"{'from the command to the first record, 2 workers':50} {first:7.1f} s")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
