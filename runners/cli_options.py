"""What several commands of `vitinit` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LOCAL = Path("results/local")
"""Where this machine's records go."""

DataOption = Annotated[Path | None, typer.Option(help="Where datasets lie. Default: $VITINIT_DATA, else ./data.")]
