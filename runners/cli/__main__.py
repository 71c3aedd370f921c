"""The command line `vitinit`, or `python -m vitinit.runners.cli`. It parses, prints and calls."""

import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated

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
    "tables": ("tables.__main__", "Write tables of records, and print the main one of each study."),
    "figures": ("figures.__main__", "Draw figures of records."),
    "curves": ("curves.__main__", "Draw attention and representations over epochs."),
    "report": ("report", "Write an HTML page for each study."),
    "pages": ("pages.__main__", "Write each study's README, an index and the board."),
    "choose": ("choose", "Choose a setting for each row of a tuning study on validation images."),
}
"""Commands of `vitinit.analysis`: the module of each, whose function `run` it is, and its line in the list of all."""


def command(asked: str) -> None:
    """Carry out the command that is asked for; of the others no module is imported unless it is none of them."""
    import typer

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

    names = *COMMANDS, *ANALYSIS, *GROUPS
    for name in [asked] if asked in names else names:
        if name in ANALYSIS:
            file, text = ANALYSIS[name]
            if name == asked:
                app.command(name)(import_module(f"vitinit.analysis.{file}").run)
            else:
                app.command(name, help=text)(lambda: None)
            continue
        module = import_module(f"vitinit.runners.cli.{(COMMANDS | GROUPS)[name]}")
        if name in GROUPS:
            app.add_typer(getattr(module, f"{name}_app"), name=name)
        else:
            app.command(name)(getattr(module, "list_" if name == "list" else name))
    app()


def main() -> None:
    """Entry point: one line and exit code 2 where something is missing."""
    if sys.platform == "win32":
        line = "the benchmark runs on Linux and macOS; on Windows in WSL"
    elif find_spec("typer") is None:  # `vitinit.initialize` does without
        line = "the command vitinit needs typer: in a clone, pip install '.[benchmark]'"
    else:
        sys.exit(guarded(lambda: command("".join(sys.argv[1:2]))))
    print(f"error: {line}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
