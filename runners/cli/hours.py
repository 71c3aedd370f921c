"""`vitinit plan --estimate`: how long what is left of a grid takes. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from vitinit.initializers.errors import count
from vitinit.runners.cli.options import REFERENCE, console
from vitinit.runners.terminal.duration import duration
from vitinit.runners.terminal.markup import safe

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell


def print_estimate(title: str, cells: list[Cell], device: str, results: Path) -> None:
    """One line for each dataset, model and recipe among runs that have no record yet; then the hours of all."""
    from vitinit.benchmark import speed
    from vitinit.runners.basics.machine import default_device
    from vitinit.runners.launching.estimate import estimate, in_proportion

    chosen = default_device() if device == "auto" else device
    if not cells:
        console.print("nothing is left to do")
        return
    roots = [results, REFERENCE]
    measured, reports = estimate(cells, roots, chosen), speed.reports(roots, chosen)
    guessed = in_proportion(cells, reports[0]) if reports else {}
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        model = cell.spec.model
        shape = f"{model.shape}, {cell.spec.recipe.precision}"
        groups.setdefault((cell.spec.dataset.label, shape, str(cell.spec.recipe.epochs)), []).append(cell)
    console.print(safe(title))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    word = max(len(word) for dataset, _, _ in groups for word in dataset.split())  # 10000 is not to fold to 1000 and 0
    table.add_column("dataset", overflow="fold", min_width=min(word, console.width // 5))
    for heading in ("model", "epochs", "runs", "each", "hours", "from"):
        table.add_column(heading, justify="left" if heading in ("model", "from") else "right", overflow="fold")
    total, unknown = 0.0, 0
    for (dataset, shape, epochs), members in groups.items():
        scaled = {**guessed, **measured.in_proportion}
        known = [measured.seconds.get(cell.run_id, scaled.get(cell.run_id)) for cell in members]
        times = [seconds for seconds in known if seconds is not None]
        total, unknown = total + sum(times), unknown + len(members) - len(times)
        first = members[0].run_id
        source = "records" if first in measured.seconds else "its model" if first in measured.in_proportion else "speed"
        source = source if times else "unknown"
        each = duration(sum(times) / len(times)) if times else ""
        hours = f"{sum(times) / 3600:.2f}" if times else ""
        table.add_row(safe(dataset), shape, epochs, str(len(members)), each, hours, source)
    console.print(table)
    where = sorted(
        {
            *measured.measured_on,
            *([reports[0].name] if guessed.keys() - measured.seconds.keys() - measured.in_proportion.keys() else []),
        }
    )
    if not where:
        console.print(f"nothing like it was measured on {chosen} yet; measure this machine with: vitinit speed")
        return
    missing = f", without {count(unknown, 'run')} that nothing is known of" if unknown else ""
    console.print(f"{total / 3600:.2f} hours, one run at a time, as measured on {safe(', '.join(where))}{missing}")
