"""The command line `vitinit`, or `python -m vitinit.runners.cli`. It parses, prints and calls."""

import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from vitinit.initializers.errors import VitinitError, guarded

# torch and timm take seconds to import: commands import what needs them themselves, so that help comes at once.

COMMANDS = Path(__file__).with_name("commands.yaml")
"""Commands by name: module, function or group of commands, and the line in the list of all where a module is slow."""


def command(asked: str) -> None:
    """Carry out the command that is asked for; of the others no module is imported unless it is none of them."""
    if sys.platform == "win32":
        raise VitinitError("the benchmark runs on Linux and macOS; on Windows in WSL")
    if find_spec("typer") is None:  # `vitinit.initialize` does without
        raise VitinitError("the command vitinit needs typer: in a clone, pip install '.[benchmark]'")
    import typer
    import yaml

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    def print_version(given: bool) -> None:
        if given:
            print(f"vitinit {version('vitinit')}")
            raise typer.Exit

    @app.callback()
    def options(
        version: Annotated[
            bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
        ] = False,
    ) -> None:
        """A reproducible benchmark of how Vision Transformers are initialised."""

    commands = yaml.safe_load(COMMANDS.read_bytes())
    for name in [asked] if asked in commands else commands:
        module, attribute, *line = commands[name]
        if line and name != asked:
            app.command(name, help=line[0])(lambda: None)
            continue
        function = getattr(import_module(f"vitinit.{module}"), attribute)
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=name)
        else:
            app.command(name)(function)
    app()


def main() -> None:
    """Entry point: one line and exit code 2 where something is missing."""
    sys.exit(guarded(lambda: command("".join(sys.argv[1:2]))))


if __name__ == "__main__":
    main()
