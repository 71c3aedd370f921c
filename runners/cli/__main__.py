"""`vitinit` and `python -m vitinit.runners.cli`: the command line, where what it needs is installed."""

import sys


def main() -> None:
    """Entry point: one line and exit code 2 where something is missing."""
    if sys.platform == "win32":
        print("error: the benchmark runs on Linux and macOS; on Windows in WSL", file=sys.stderr)
        sys.exit(2)
    try:
        from vitinit.runners.cli.main import main as command
    except ModuleNotFoundError as error:  # `vitinit.initialize` does without
        print(f"error: the command vitinit needs {error.name}: pip install 'vitinit[benchmark]'", file=sys.stderr)
        sys.exit(2)
    command()


if __name__ == "__main__":
    main()
