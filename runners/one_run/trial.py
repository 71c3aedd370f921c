"""`vitinit run GRID --try` and `vitinit rank`: a step of every row and dataset, before hours are spent."""

import time
from collections import defaultdict
from contextlib import suppress

import torch

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import count, located
from vitinit.runners.basics.setting import Setting, Stop, Stopped
from vitinit.runners.launching.work import Tally, Work
from vitinit.runners.one_run.carry_out import Run
from vitinit.runners.options import print_table
from vitinit.runners.terminal.display import Display
from vitinit.runners.training.train import autocast, train


def try_out(todo: Work, display: Display) -> Tally:
    """Try the first run of every row and dataset, one after the other; print what fails and how long all take."""
    places = defaultdict[tuple[str, str], list[Cell]](list)
    for cell in todo.cells:
        places[cell.place].append(cell)
    table, total, tally = [], 0.0, Tally()
    for place, cells in places.items():
        try:
            seconds = measured_seconds(cells[0], todo.setting)
        except Exception as error:  # of anyone's model or method
            tally.failures.append(cells[0].run_id)
            table.append((*place, str(len(cells)), f"fails, {type(error).__name__}: {located(error)}"))
            continue
        total += seconds * len(cells)
        table.append((*place, str(len(cells)), f"about {duration(seconds)}"))
    print_table(("row", "dataset", "runs", "each"), table, right=("runs",))
    at_once = f", {duration(total / todo.slots)} with {todo.slots} at once" if todo.slots > 1 else ""
    fail = f"; {tally.failed} of {len(places)} rows fail" if tally.failed else ""
    display.say(f"{count(len(todo.cells), 'run')} take about {duration(total)}{at_once}{fail}")
    return tally


def measured_seconds(cell: Cell, setting: Setting) -> float:
    """Initialise a run, train two steps of it and evaluate a batch; return about how long the whole will take."""
    began = time.perf_counter()
    run = Run(cell, setting, Stop())
    run.begin()
    training, loader, recipe = run.training, run.loader, cell.spec.recipe
    times = [time.perf_counter()]

    def between_steps() -> None:
        float(training.loss_sum)  # waits for a GPU
        times.append(time.perf_counter())
        if len(times) == 3:
            raise Stopped("two steps are enough")

    with suppress(Stopped):
        train(training, loader, cell.spec.seed, between_steps=between_steps)
    start = time.perf_counter()
    images, _ = next(loader.held_out())
    with torch.inference_mode(), autocast(recipe, loader.device):
        training.model.eval()(images).sum().item()
    image_s = (time.perf_counter() - start) / len(images)
    evaluation_s = len(recipe.evaluated_epochs) * len(run.data.held_out.labels) * image_s
    return times[0] - began + recipe.epochs * loader.steps * (times[2] - times[1]) + evaluation_s
