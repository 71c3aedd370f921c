"""The command `vitinit rank`: is my initialisation better, and is it its pattern?"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import count
from vitinit.runners.basics.environment import ROOT
from vitinit.runners.options import LOCAL, REFERENCE, DataOption, LaunchOptions, ResultsOption, console

if TYPE_CHECKING:
    from vitinit.runners.launching.rank import Ranked


def rank(
    method: Annotated[
        str,
        typer.Argument(
            help="A method: its name, {name: NAME, PARAMETER: VALUE}, path/to/file.py:Class or package.module:Class."
        ),
    ],
    budget: Annotated[
        str,
        typer.Option(help="Time limit: 90s, 30m, 2h. It limits the seeds, not the answer. One round always runs."),
    ] = "30m",
    tier: Annotated[
        Literal["quick", "standard"],
        typer.Option(help="quick: 0.1 M parameters, five epochs. standard: 0.3 M, forty: a seed takes hours."),
    ] = "quick",
    base: Annotated[
        str | None, typer.Option(help="Base under the method, written like METHOD. Default: kaiming_uniform.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Changes to the tier's model: {FIELD: VALUE}.")] = None,
    worth: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=100,
            metavar="POINTS",
            help="Smallest gain worth having: once a larger one is excluded, rank stops. Default: 1.",
        ),
    ] = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")] = False,
) -> None:
    """Train a method, its own base and its placebo under the standard protocol, and say where it stands.

    There are two planned looks, at 8 and at 12 seeds. The same command again goes on towards the next one, and changes
    no answer that was given. Exit code 1: a run has failed.
    """
    from vitinit.runners.basics.machine import default_device
    from vitinit.runners.launching.launch import default_workers
    from vitinit.runners.launching.rank import BESIDE, TIERS, Budget, prepare, recorded, seconds, standing

    allowance = Budget(seconds(budget))
    folder = datasets.data_dir(data_dir)
    ranked = prepare(method, tier, base, model, results, folder, worth)
    study = ranked.grid.stem
    if ranked.useless:
        console.print(f"without a placebo: {ranked.useless}", style="yellow")
    at_once = default_workers(default_device(), None)

    def carry_out(first: int, end: int) -> int:
        return train_seeds(ranked, first, end, folder, results, retry_failed)

    def failed() -> int:
        return len(Store(results).read(study).failed)

    judging = [study, "--results", str(results)]
    code, done, plan = 0, recorded(ranked, results, retry_failed), ranked.looks
    while target := plan.target:
        done, code = allowance.rounds(done, target, at_once, carry_out)
        if code or done < target or failed() or (code := standing([*judging, "--brief"])):
            break
        if (after := looks.read(results / study) or plan) == plan:  # nothing was looked at: what is printed says why
            break
        plan = after
    given = {"--base": base, "--model": model, "--worth": worth, "--data-dir": data_dir, "--results": results}
    words = ["vitinit", "rank", method, "--tier", tier]
    for option, value in given.items():
        words += [option, str(value)] if value not in (None, LOCAL) else []
    if target and not code:
        console.print(f"{done} of {target} seeds; another round takes about {duration(allowance.longest)}: --budget")
    if number := failed():
        again = f"{shlex.join(words)} --retry-failed --budget {budget}"  # which they were begun within
        console.print(f"{count(number, 'run')} failed; to run again: {again}")
    enough = max(2, math.ceil(allowance.longest / 3600))  # hours: a round at least
    more = f"{shlex.join(words)} --budget {enough}h" if target else ""
    committed = [str(ROOT / REFERENCE / name) for name in (TIERS[tier], *BESIDE[tier])]
    answer = standing([*judging, "--more", more, "--beside", *committed])
    raise typer.Exit(1 if code or number else answer)


def train_seeds(ranked: Ranked, first: int, end: int, data: Path, results: Path, retry_failed: bool = False) -> int:
    """Train some seeds of a study, and return the exit code: 1 where a run has failed.

    Raises:
        Exit: it was stopped.
    """
    from vitinit.benchmark.grids import grid
    from vitinit.runners.launching.launch import launch
    from vitinit.runners.terminal.display import Display

    options = LaunchOptions(executor="local", data_dir=data, download=False, results=results, retry_failed=retry_failed)
    loaded = grid.load(str(ranked.grid), ranked.looks.seeds[first:end])
    argv = ["vitinit", "run", str(ranked.grid), "--results", str(results)]
    try:
        return launch(loaded, options, Display(console), argv).exit_code
    except KeyboardInterrupt as stopped:
        console.print(str(stopped))
        raise typer.Exit(130) from None
