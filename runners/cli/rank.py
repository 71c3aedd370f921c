"""The command `vitinit rank`: is my initialisation better, and is it its pattern?"""

from __future__ import annotations

import math
import shlex
from typing import Annotated, Literal

import typer

from vitinit.benchmark.datasets import load as datasets
from vitinit.benchmark.records.store import Store
from vitinit.initializers.errors import count
from vitinit.runners.basics.environment import ROOT
from vitinit.runners.cli.options import LOCAL, REFERENCE, DataOption, ResultsOption, console
from vitinit.runners.cli.run import default_workers
from vitinit.runners.terminal.duration import duration


def rank(
    method: Annotated[
        str,
        typer.Argument(
            help="A method: its name, {name: NAME, PARAMETER: VALUE}, path/to/file.py:Class or package.module:Class."
        ),
    ],
    budget: Annotated[
        str,
        typer.Option(help="As many seeds as fit: 90s, 30m, 2h. One round always runs: a seed per core, one on a GPU."),
    ] = "30m",
    tier: Annotated[
        Literal["quick", "standard"],
        typer.Option(help="quick: 0.1 M parameters, five epochs. standard: 0.3 M, forty: a seed takes hours."),
    ] = "quick",
    base: Annotated[
        str | None, typer.Option(help="What the method leaves alone, named as METHOD is. Default: kaiming_uniform.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Changes to the tier's model: {FIELD: VALUE}.")] = None,
    data_dir: DataOption = None,
    results: ResultsOption = LOCAL,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")] = False,
) -> None:
    """Train a method, its own base and its placebo under the standard protocol, and say where it stands.

    The same command again takes what is recorded and goes on with more seeds. Exit code 1: a run has failed.
    """
    from vitinit.runners.basics.machine import default_device
    from vitinit.runners.launching.rank import TIERS, call, outlook, prepare, rounds, seconds

    time = seconds(budget)
    folder = datasets.data_dir(data_dir)
    ranked = prepare(method, tier, base, model, results, folder)
    if ranked.useless:
        console.print(f"without a placebo: {ranked.useless}", style="yellow")

    at_once = min(default_workers(default_device(), None), ranked.most)
    committed = ROOT / REFERENCE
    before = outlook(ranked, at_once, results, [results, committed], retry_failed)
    console.print(before.text)

    def carry_out(seeds: range) -> int:
        arguments = ["run", str(ranked.grid), "--seeds", f"{seeds.start}-{seeds.stop - 1}", "--executor", "local"]
        arguments += ["--data-dir", str(folder), "--no-download", "--results", str(results)]
        code = call("vitinit.runners.cli", [*arguments, *(["--retry-failed"] if retry_failed else [])])
        if code not in (0, 1):  # refused, or stopped
            raise typer.Exit(code)
        return code

    done, code, longest = rounds(time, ranked.most, at_once, carry_out, before.through, before.round_seconds)
    given = {"--base": base, "--model": model, "--data-dir": data_dir, "--results": results}
    words = ["vitinit", "rank", method, "--tier", tier]
    for option, value in given.items():
        words += [option, str(value)] if value not in (None, LOCAL) else []
    enough = max(2, math.ceil(longest / 3600))  # hours: a round at least
    more = "" if done == ranked.most else f"{shlex.join(words)} --budget {enough}h"
    console.print(f"{done} of the tier's {ranked.most} seeds; records in {results / ranked.grid.stem}")
    if done < ranked.most and not code:
        console.print(f"another round takes about {duration(longest)}, which {budget} does not leave")
    if failed := len(Store(results).outline(ranked.grid.stem).failed):
        again = f"{shlex.join(words)} --retry-failed --budget {budget}"  # which they were begun within
        console.print(f"{count(failed, 'run')} failed; to run again: {again}")
    arguments = [ranked.grid.stem, "--results", str(results), "--beside", str(committed / TIERS[tier])]
    standing = call("vitinit.analysis.standing", [*arguments, "--more", more])
    raise typer.Exit(1 if code or failed else standing)
