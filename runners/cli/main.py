"""The command line `vitinit`. It parses, prints and calls; the work is done elsewhere."""

from __future__ import annotations

import errno
import os
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from vitinit.initializers.errors import VitinitError, forgiving_terminal, of_files
from vitinit.runners.cli import check as cli_check
from vitinit.runners.cli import listing as cli_listing
from vitinit.runners.cli import plan as cli_plan
from vitinit.runners.cli import rank as cli_rank
from vitinit.runners.cli import records as cli_records
from vitinit.runners.cli import run as cli_run
from vitinit.runners.cli.data import data_app
from vitinit.runners.cli.slurm import slurm_app
from vitinit.runners.cli.store import store_app
from vitinit.slurm.errors import SlurmError

# torch and timm take seconds to import: commands import what needs them themselves, so that help comes at once.

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(store_app, name="store")
app.add_typer(slurm_app, name="slurm")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"vitinit {version('vitinit')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A reproducible benchmark of how Vision Transformers are initialised."""


for command in (
    cli_plan.plan,
    cli_run.run,
    cli_plan.status,
    cli_rank.rank,
    cli_check.check,
    cli_records.show,
    cli_records.reproduce,
):
    app.command()(command)
app.command("list")(cli_listing.list_)


ANALYSIS = {
    "tables": "Write tables of records as LaTeX, and print the main one of each study.",
    "figures": "Draw figures of records.",
    "curves": "Draw attention and representations over epochs.",
    "report": "Write an HTML page for each study.",
    "pages": "Write each study's README, an index and the board.",
    "choose": "Choose a setting for each row of a tuning study on validation images.",
}
"""Commands of `python -m analysis.NAME`, which parse what follows by themselves."""


def _analyse(context: typer.Context) -> None:
    sys.argv[1:] = context.args
    runpy.run_module(f"vitinit.analysis.{context.info_name}", run_name="__main__", alter_sys=True)


for name, text in ANALYSIS.items():
    passed_on = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name, help=text, add_help_option=False, context_settings=passed_on)(_analyse)


def main() -> None:
    """Entry point: one line and exit code 2 for anything the user can mend."""
    forgiving_terminal()
    try:
        try:
            app()
        finally:
            if sys.stdout:  # None where it is closed, as by `>&-`
                sys.stdout.flush()
    except (VitinitError, SlurmError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if not (line := of_files(error)):
            raise
        if error.errno == errno.ENOSPC:
            # what is left in the buffer cannot be written at the end either
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
        print(f"error: {line}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
