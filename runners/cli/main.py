"""The command line `vitinit`. It parses, prints and calls; the work is done elsewhere."""

from __future__ import annotations

import runpy
import sys
from importlib import import_module
from typing import Annotated

import typer

from vitinit.initializers.errors import guarded

# torch and timm take seconds to import: commands import what needs them themselves, so that help comes at once.

COMMANDS = {
    "plan": "plan",
    "run": "plan",
    "status": "plan",
    "rank": "plan",
    "check": "check",
    "show": "records",
    "reproduce": "records",
    "list": "listing",
}
"""Commands by name: the module of each, where it is a function of that name, `list_` for `list`."""
GROUPS = {"data": "data", "store": "records", "slurm": "plan"}
"""Commands with commands of their own: the module of each, where it is `data_app`, and so on."""
ANALYSIS = {
    "tables": "Write tables of records as LaTeX, and print the main one of each study.",
    "figures": "Draw figures of records.",
    "curves": "Draw attention and representations over epochs.",
    "report": "Write an HTML page for each study.",
    "pages": "Write each study's README, an index and the board.",
    "choose": "Choose a setting for each row of a tuning study on validation images.",
}
"""Commands of `python -m analysis.NAME`, which parse what follows by themselves."""


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"vitinit {version('vitinit')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A reproducible benchmark of how Vision Transformers are initialised."""


def _analyse(context: typer.Context) -> None:
    sys.argv[1:] = context.args
    runpy.run_module(f"vitinit.analysis.{context.info_name}", run_name="__main__", alter_sys=True)


def command_line(asked: str) -> typer.Typer:
    """Return the command line with the command that is asked for; with all of them where it is none."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_options)
    names = *COMMANDS, *ANALYSIS, *GROUPS
    for name in [asked] if asked in names else names:
        if name in ANALYSIS:
            passed_on = {"ignore_unknown_options": True, "allow_extra_args": True}
            app.command(name, help=ANALYSIS[name], add_help_option=False, context_settings=passed_on)(_analyse)
            continue
        module = import_module(f"vitinit.runners.cli.{(COMMANDS | GROUPS)[name]}")
        if name in GROUPS:
            app.add_typer(getattr(module, f"{name}_app"), name=name)
        else:
            app.command(name)(getattr(module, "list_" if name == "list" else name))
    return app


def main() -> None:
    """Entry point."""
    sys.exit(guarded(lambda: command_line("".join(sys.argv[1:2]))()))
