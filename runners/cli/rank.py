"""The command `vitinit rank`: is my initialisation better, and is it its pattern?"""

from __future__ import annotations

import math
import shlex
import time
from typing import Annotated, Literal

import typer

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.store import Store
from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import count
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
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")] = False,
) -> None:
    """Train a method, its own base and its placebo under the standard protocol, and say where it stands.

    There are two planned looks, at 8 and at 12 seeds. The same command again continues to the next one and never
    repeats a look. Exit code 1: a run has failed.
    """
    from vitinit.runners.launching import rank as ranking
    from vitinit.runners.launching.launch import find_place, launch
    from vitinit.runners.terminal.display import Display

    allowed, folder, display = ranking.seconds(budget), datasets.data_dir(data_dir), Display(console)
    ranked = ranking.prepare(method, tier, base, results, folder)
    study, plan = ranked.grid.stem, ranked.looks
    if ranked.useless:
        console.print(f"without a placebo: {ranked.useless}", style="yellow")
    options = LaunchOptions(executor="local", data_dir=folder, results=results, retry_failed=retry_failed)
    place, done = find_place(options, display), ranking.recorded(ranked, results, retry_failed)
    beside = [ROOT / REFERENCE / name for name in (ranking.TIERS[tier], *ranking.BESIDE[tier])]
    if target := plan.target:
        took = estimate(ranked.of(plan.seeds[done:target]).cells, [results / study, *beside], place.device)
        if (needed := sum(took.values()) / place.workers) > allowed:
            console.print(f"the look at {target} seeds takes about {duration(needed)}: --budget")
    argv = ["vitinit", "run", str(ranked.grid), "--results", str(results)]
    began, longest, code = time.monotonic(), 0.0, 0
    while (target := plan.target) and not code:
        while done < target and not code and (not longest or time.monotonic() - began + longest <= allowed):
            before, upto = time.monotonic(), min(target, done + place.workers)
            try:
                code = launch(ranked.of(plan.seeds[done:upto]), options, Display(console), argv).exit_code
            except KeyboardInterrupt as stopped:
                console.print(str(stopped))
                raise typer.Exit(130) from None
            done, longest = upto, max(longest, time.monotonic() - before)
        if code or done < target or Store(results).read(study).failed:
            break
        if code := ranking.standing([study, "--results", str(results), "--brief"]):
            break
        if (after := looks.read(results / study) or plan) == plan:  # nothing was looked at: what is printed says why
            break
        plan = after
    words = ["vitinit", "rank", method, "--tier", tier]
    given = {"--base": base, "--data-dir": data_dir, "--results": results}
    words += [word for option, value in given.items() if value not in (None, LOCAL) for word in (option, str(value))]
    if target and not code:
        console.print(f"{done} of {target} seeds; another round takes about {duration(longest)}: --budget")
    if failed := len(Store(results).read(study).failed):
        again = f"{shlex.join(words)} --retry-failed --budget {budget}"  # which they were begun within
        console.print(f"{count(failed, 'run')} failed; to run again: {again}")
    more = f"{shlex.join(words)} --budget {max(2, math.ceil(longest / 3600))}h" if target else ""
    answer = ranking.standing([study, "--results", str(results), "--more", more, "--beside", *map(str, beside)])
    raise typer.Exit(1 if code or failed else answer)
