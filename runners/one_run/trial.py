"""`vitinit run GRID --try` and `vitinit rank`: a step of every row and dataset, before hours are spent."""

import time
from contextlib import suppress

from vitinit.benchmark.grids.schema import Cell
from vitinit.benchmark.terminal import duration
from vitinit.initializers.errors import count, located
from vitinit.runners.basics.setting import Setting, Stop, Stopped
from vitinit.runners.launching.work import Tally, Work
from vitinit.runners.one_run.carry_out import Run
from vitinit.runners.options import print_table
from vitinit.runners.training.train import train


def try_out(todo: Work) -> Tally:
    """Try the first run of every row and dataset, one after the other; print what fails and how long all take."""
    first = {cell.place: cell for cell in reversed(todo.cells)}
    seconds, words, tally = dict.fromkeys(first, 0.0), dict[tuple[str, str], str](), Tally()
    for place, cell in first.items():
        try:
            seconds[place] = measured_seconds(cell, todo.setting)
            words[place] = f"about {duration(seconds[place])}"
        except Exception as error:  # of anyone's model or method
            tally.failures.append(cell.run_id)
            words[place] = f"fails, {type(error).__name__}: {located(error)}"
    print_table(("row", "dataset", "each run"), [(*place, words[place]) for place in reversed(first)])
    total = sum(seconds[cell.place] for cell in todo.cells)
    print(f"{count(len(todo.cells), 'run')}, {todo.slots} at once: about {duration(total / todo.slots)}")
    return tally


def measured_seconds(cell: Cell, setting: Setting) -> float:
    """Initialise a run and train two steps of it; return about how long the whole will take."""
    times = [time.perf_counter()]
    run = Run(cell, setting, Stop())
    run.begin()

    def between_steps() -> None:
        float(run.training.loss_sum)  # waits for a GPU
        times.append(time.perf_counter())
        if len(times) == 3:
            raise Stopped

    with suppress(Stopped):
        train(run.training, run.loader, cell.spec.seed, between_steps=between_steps)
    recipe, held_out = cell.spec.recipe, len(run.data.held_out.labels)
    # a step without backward pass takes about a third
    evaluation = len(recipe.evaluated_epochs) * held_out / recipe.batch_size / 3
    return times[1] - times[0] + (recipe.epochs * run.loader.steps + evaluation) * (times[2] - times[1])
