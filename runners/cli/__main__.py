"""`vitinit` and `python -m runners.cli`: the command line, where what it needs is installed."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, requires

EXTRA = re.compile(r"""([\w.-]+).*\bextra == ['"]benchmark['"]""")
"""A requirement of the benchmark, as the installed distribution states it."""


def missing() -> list[str]:
    """Return the packages that the benchmark needs and that are not installed; `vitinit.initialize` does without."""
    names = [found[1] for found in map(EXTRA.match, requires("vitinit") or ()) if found]
    return [name for name in names if not _installed(name)]


def _installed(name: str) -> bool:
    try:
        return bool(distribution(name))
    except PackageNotFoundError:
        return False


def main() -> None:
    """Entry point: one line and exit code 2 where something is missing."""
    if sys.platform == "win32":
        print("error: the benchmark runs on Linux and macOS; on Windows in WSL", file=sys.stderr)
        sys.exit(2)
    if _installed("vitinit") and (lacking := missing()):
        how = "pip install 'vitinit[benchmark]'"
        print(f"error: this is the benchmark's command, which needs {', '.join(lacking)}: {how}", file=sys.stderr)
        sys.exit(2)
    from vitinit.initializers.errors import refuse_deleted_folder

    refuse_deleted_folder()
    from vitinit.runners.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
