"""`vitinit run`: carry out what a grid still lacks."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import typer

from vitinit.runners.options import RunCommand, console


def run(**given: Any) -> None:
    """Run every experiment of a grid that has no record yet. After a stop, the same command resumes.

    Exit code 1: a run has failed or was stopped; 130: Ctrl-C; 2: refused.
    """
    from vitinit.runners.launching.choose import load_grid
    from vitinit.runners.launching.launch import launch
    from vitinit.runners.terminal.display import Display

    asked = RunCommand(**given)
    try:
        tally = launch(load_grid(asked.grid, asked.seeds, asked.fixed), asked, Display(console))
    except KeyboardInterrupt as stopped:
        console.print(str(stopped) or "stopped")
        raise typer.Exit(130) from None
    raise typer.Exit(tally.exit_code)


vars(run)["__signature__"] = inspect.signature(RunCommand, eval_str=True)
run.__annotations__ = get_type_hints(RunCommand, include_extras=True)
