"""The command line `vitinit`. It parses, prints and calls; the work is done elsewhere."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
import yaml

from initializers.errors import VitinitError, forgiving_terminal, unknown_name
from runners.cli import plan as cli_plan
from runners.cli import proposition as cli_proposition
from runners.cli import rank as cli_rank
from runners.cli import records as cli_records
from runners.cli import speed as cli_speed
from runners.cli.data import data_app
from runners.cli.options import console
from runners.cli.run import command as cli_run
from runners.cli.slurm import slurm_app
from runners.cli.store import store_app
from runners.terminal.markup import safe
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


@app.command("list")
def list_(kind: Annotated[str, typer.Argument(help="initializers, datasets, models, recipes or grids")]) -> None:
    """List what a grid can name."""
    kinds = ("initializers", "datasets", "models", "recipes", "grids")
    if kind not in kinds:
        raise unknown_name("kind", kind, kinds)
    from benchmark.datasets import registry as datasets
    from benchmark.datasets.load import data_dir
    from benchmark.grids import grid, parts
    from benchmark.models import registry as models
    from initializers import registry

    if kind == "initializers":
        for name in registry.names():
            cls = registry.get(name)
            console.print(f"[bold]{safe(name)}[/bold] ({cls.kind}): {safe((cls.__doc__ or '').splitlines()[0])}")
            for field, info in cls.model_fields.items():
                choices = [str(choice) for choice in registry.choices(info.annotation)]
                allowed = f"  ({' | '.join(choices)})" if choices else ""
                console.print(f"    {field} = {safe(str(info.get_default(call_default_factory=True)) + allowed)}")
    elif kind == "datasets":
        for name in datasets.names():
            dataset = datasets.get(name)
            if dataset.takes_path:
                console.print(f"{safe(name)}:PATH  {safe((type(dataset).__doc__ or '').splitlines()[0])}")
            else:
                reason = dataset.unavailable(parts.resolve_dataset({"name": name}), data_dir(None))
                console.print(f"{safe(name)}  {safe(reason) if reason else 'available'}")
    elif kind == "models":
        for name, fields in models.presets().items():
            console.print(f"{name}  " + ", ".join(f"{key} {value}" for key, value in fields.items()))
    elif kind == "recipes":
        for name in parts.recipes():
            recipe = parts.resolve_recipe({"name": name})
            console.print(f"[bold]{name}[/bold]")
            console.print(yaml.safe_dump(recipe.model_dump(mode="json", exclude={"name"}), sort_keys=False, indent=4))
    else:
        for name in grid.names():
            loaded = grid.load(name)
            console.print(f"{name}  {len(loaded.cells)} runs  {safe(loaded.title)}")


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
