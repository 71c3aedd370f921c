"""From records to tables and figures. Imports no torch and no training code."""

import sys
from importlib.util import find_spec

NEEDS = ("jinja2", "matplotlib", "pandas", "scipy", "typer")
"""Packages of `vitinit[benchmark]` that its files use."""

# So argv begins as long as `python -m analysis.*` looks for its module; elsewhere Python's own error says it.
if sys.argv[:1] == ["-m"] and (lacking := [name for name in NEEDS if find_spec(name) is None]):
    how = "source .venv/bin/activate, or pip install -e '.[benchmark]' in a clone"
    print(f"error: analysis needs {', '.join(lacking)}, which {sys.executable} lacks: {how}", file=sys.stderr)
    sys.exit(2)
