"""`vitinit plan --estimate`: how long what is left of a grid takes. Imports torch only to measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import count
from vitinit.runners.cli.options import REFERENCE, console

if TYPE_CHECKING:
    from vitinit.benchmark.grids.schema import Cell


def print_estimate(title: str, cells: list[Cell], device: str, results: Path) -> None:
    """One line for each dataset, model and recipe among runs that have no record yet; then the hours of all.

    What records say nothing of is measured here, in seconds.
    """
    from vitinit.runners.basics.environment import device_name
    from vitinit.runners.basics.machine import default_device
    from vitinit.runners.launching.estimate import estimate

    chosen = default_device() if device == "auto" else device
    if not cells:
        console.print("nothing is left to do")
        return
    recorded = estimate(cells, [results, REFERENCE], chosen, device_name(chosen))
    known_of = recorded.seconds | recorded.in_proportion
    timed, machine = _timed([cell for cell in cells if cell.run_id not in known_of], chosen)
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        model = cell.spec.model
        shape = f"{model.shape}, {cell.spec.recipe.precision}"
        groups.setdefault((cell.spec.dataset.label, shape, str(cell.spec.recipe.epochs)), []).append(cell)
    console.print(title)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    word = max(len(word) for dataset, _, _ in groups for word in dataset.split())  # 10000 is not to fold to 1000 and 0
    table.add_column("dataset", overflow="fold", min_width=min(word, console.width // 5))
    for heading in ("model", "epochs", "runs", "each", "hours", "from"):
        table.add_column(heading, justify="left" if heading in ("model", "from") else "right", overflow="fold")
    total, unknown = 0.0, 0
    for (dataset, shape, epochs), members in groups.items():
        known = [(known_of | timed).get(cell.run_id) for cell in members]
        times = [seconds for seconds in known if seconds is not None]
        total, unknown = total + sum(times), unknown + len(members) - len(times)
        first = members[0].run_id
        sources = {"records": recorded.seconds, "its model": recorded.in_proportion, "measured now": timed}
        source = next((name for name, its in sources.items() if first in its), "unknown")
        each = duration(sum(times) / len(times)) if times else ""
        hours = f"{sum(times) / 3600:.2f}" if times else ""
        table.add_row(dataset, shape, epochs, str(len(members)), each, hours, source)
    console.print(table)
    where = sorted({*recorded.measured_on, *([machine] if timed else [])})
    if not where:
        console.print(f"nothing is known of these runs on {chosen}: their data are not here, or no memory is left")
        return
    missing = f", without {count(unknown, 'run')} that nothing is known of" if unknown else ""
    console.print(f"{total / 3600:.2f} hours, one run at a time, as measured on {', '.join(where)}{missing}")


def _timed(cells: list[Cell], device: str) -> tuple[dict[str, float], str]:
    """Seconds of runs by run_id from one short measurement for each model, precision and, on a GPU, batch size.

    The second value is the machine's name. Runs of a dataset whose size only its files tell are missing, and those for
    which there is no memory.
    """
    from vitinit.benchmark.datasets import registry
    from vitinit.runners.launching.estimate import images_seen, model_of

    rates: dict[str, float | None] = {}
    seconds: dict[str, float] = {}
    counted = [(cell, registry.get(cell.spec.dataset.name).counts(cell.spec.dataset)) for cell in cells]
    if not any(counts for _, counts in counted):
        return {}, ""
    import torch

    from vitinit.runners.basics.environment import device_name, set_flags
    from vitinit.runners.basics.machine import cores
    from vitinit.runners.basics.setting import Execution
    from vitinit.runners.measuring.step import seconds_per_image

    set_flags(Execution(device, cores(), "inline"))
    with console.status("measuring how long a step takes"):
        for cell, counts in counted:
            spec, key = cell.spec, model_of(cell.spec, device)
            if counts and key not in rates:
                try:
                    rates[key] = seconds_per_image(spec.model, spec.recipe, torch.device(device))
                except (RuntimeError, MemoryError):  # no memory is left
                    rates[key] = None
            if counts and (rate := rates[key]) is not None:
                seconds[cell.run_id] = rate * images_seen(spec, counts)
    return seconds, device_name(device)
