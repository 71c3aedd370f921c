"""The command `vitinit rank`: is my initialisation better, and is it its pattern?"""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Literal

import typer

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.store import Store
from vitinit.runners.basics.environment import ROOT
from vitinit.runners.launching.estimate import estimate
from vitinit.runners.options import LOCAL, REFERENCE, DataOption, LaunchOptions, ResultsOption, console


def rank(
    method: Annotated[
        str,
        typer.Argument(
            help="A method: its name, {name: NAME, PARAMETER: VALUE}, path/to/file.py:Class or package.module:Class."
        ),
    ],
    tier: Annotated[
        Literal["quick", "standard"],
        typer.Option(help="quick: 0.1 M parameters, five epochs. standard: 0.3 M, forty: a seed takes hours."),
    ] = "quick",
    base: Annotated[
        str | None, typer.Option(help="Base under the method, written like METHOD. Default: kaiming_uniform.")
    ] = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")] = False,
) -> None:
    """Train a method, its own base and its placebo under the standard protocol, and say where it stands.

    There are two planned looks, at 8 and at 12 seeds. After a stop, the same command goes on, and it never repeats a
    look. Exit code 1: a run has failed.
    """
    from vitinit.runners.launching import rank as ranking
    from vitinit.runners.launching.launch import launch
    from vitinit.runners.terminal.display import Display

    folder = datasets.data_dir(data_dir)
    ranked = ranking.prepare(method, tier, base, results, folder)
    study, plan, answer = ranked.grid.stem, ranked.looks, 0
    if ranked.useless:
        console.print(f"without a placebo: {ranked.useless}", style="yellow")
    beside = [ROOT / REFERENCE / name for name in (ranking.TIERS[tier], *ranking.BESIDE[tier])]
    options = LaunchOptions(executor="local", data_dir=folder, results=results, retry_failed=retry_failed)
    argv = ["vitinit", "run", str(ranked.grid), "--results", str(results)]
    while not answer:
        target, failed = plan.target, 0
        if target:
            grid = ranked.of(plan.seeds[plan.taken[-1].n if plan.taken else 0 : target])
            done = Store(results).read(study).done
            left = [cell for cell in grid.cells if cell.run_id not in done]
            read = (Store(folder.parent).read(folder.name).done.values() for folder in beside)
            if needed := estimate(left, chain(done.values(), *read)):
                console.print(f"the look at {target} seeds: {needed}")
            try:
                failed = launch(grid, options, Display(console), argv).exit_code
            except KeyboardInterrupt as stopped:
                console.print(str(stopped))
                raise typer.Exit(130) from None
        words = [study, "--results", str(results), "--beside", *map(str, beside)]
        answer = ranking.standing(words) or failed
        plan = looks.read(results / study) or plan
        if plan.target in (None, target):  # it is final, or nothing was looked at, and what is printed says why
            break
    raise typer.Exit(answer)
