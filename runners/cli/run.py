"""`vitinit run`: carry out what a grid still lacks."""

from __future__ import annotations

import typer

from vitinit.runners.options import GridArgument, LaunchOptions, SeedsOption, SetOption, console, flags


@flags
def run(grid: GridArgument, options: LaunchOptions, seeds: SeedsOption = None, fixed: SetOption = None) -> None:
    """Run every experiment of a grid that has no record yet. After a stop, the same command resumes.

    Exit code 1: a run has failed or was stopped; 130: Ctrl-C; 2: refused.
    """
    from vitinit.runners.launching.choose import load_grid
    from vitinit.runners.launching.launch import launch
    from vitinit.runners.terminal.display import Display

    try:
        tally = launch(load_grid(grid, seeds, fixed), options, Display(console))
    except KeyboardInterrupt as stopped:
        console.print(str(stopped) or "stopped")
        raise typer.Exit(130) from None
    raise typer.Exit(tally.exit_code)
