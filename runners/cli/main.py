"""The command line `vitinit`. It parses, prints and calls; the work is done elsewhere."""

from __future__ import annotations

import sys

import typer

from initializers.errors import VitinitError, forgiving_terminal
from runners.cli import listing as cli_listing
from runners.cli import plan as cli_plan
from runners.cli import proposition as cli_proposition
from runners.cli import rank as cli_rank
from runners.cli import records as cli_records
from runners.cli import speed as cli_speed
from runners.cli.data import data_app
from runners.cli.run import command as cli_run
from runners.cli.slurm import slurm_app
from runners.cli.store import store_app
from slurm.errors import SlurmError

# torch and timm take seconds to import: commands import what needs them themselves, so that help comes at once.

app = typer.Typer(
    help="A reproducible benchmark of how Vision Transformers are initialised.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(store_app, name="store")
app.add_typer(slurm_app, name="slurm")

for command in (
    cli_plan.plan,
    cli_run.run,
    cli_plan.status,
    cli_rank.rank,
    cli_records.show,
    cli_records.reproduce,
    cli_speed.speed,
    cli_proposition.proposition,
):
    app.command()(command)
app.command("list")(cli_listing.list_)


def main() -> None:
    """Entry point: one line and exit code 2 for anything the user can mend."""
    forgiving_terminal()
    try:
        app()
    except (VitinitError, SlurmError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
