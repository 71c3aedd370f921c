"""The command line in a process to which a signal comes at a chosen place, by hooks of torch and Python alone.

python -m tests.resume.strike PLACE NUMBER SIGNAL ARGUMENTS: PLACE is one of `PLACES`, or `never`.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from importlib.metadata import entry_points

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

PLACES = {
    **{"claim": r"/claim-\d+\.json$", "checkpoint": r"\.ckpt$", "record": r"/[0-9a-f]{16}\.json$"},
    **{"step": "", "evaluation": ""},
}
"""Places at which a signal strikes; of files, a pattern of the name that a file gets then."""

TRIED_OUT = 100
"""Parameters below which it is a plan that tries an optimiser out, and no training."""


def arm(place: str, number: int, signal_number: int) -> None:
    """Send this process a signal when something happens for the n-th time."""
    times, stepped = itertools.count(1), []

    def happens() -> None:
        if next(times) == number:
            os.kill(os.getpid(), signal_number)

    def step(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if sum(each.numel() for group in optimizer.param_groups for each in group["params"]) < TRIED_OUT:
            return
        stepped.append(True)
        if place == "step":
            happens()

    def forward(*_: object) -> None:
        if torch.is_inference_mode_enabled() and stepped:  # before the first step the initialisation is looked at
            happens()

    def audited(event: str, arguments: tuple) -> None:
        if event in ("os.link", "os.rename") and re.search(PLACES[place], str(arguments[1])):
            happens()

    register_optimizer_step_post_hook(step)
    if place == "evaluation":
        register_module_forward_pre_hook(forward)
    elif place != "step":
        sys.addaudithook(audited)


def main() -> None:
    """Arm this process, keep it to one core, and call the command."""
    place, number, signal_number = sys.argv[1:4]
    if place != "never":
        arm(place, int(number), int(signal_number))
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    sys.argv[1:] = sys.argv[4:]
    (entry,) = entry_points(group="console_scripts", name="vitinit")
    entry.load()()


if __name__ == "__main__":
    main()
