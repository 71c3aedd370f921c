"""Records of one study as a pandas table: one row per run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis.text import count, one_line
from vitinit.benchmark.metrics import registry
from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from vitinit.benchmark.records.store import Contents, Layout, Store
from vitinit.benchmark.settings import columns
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers.errors import VitinitError, unknown_name

if TYPE_CHECKING:  # pandas takes longer to import than `--help` may take
    import pandas as pd

LOCAL, REFERENCE = Path("results/local"), Path("results/reference")
PREFERRED_STUDIES = ("table2", "small")
ROWS = ("Kaiming uniform", "Trunc normal", "Mimetic", "Imp.-3", "Imp.-5", "ConViT")
DATASETS = (
    "digits",
    "pathfinder-easy",
    "pathfinder-medium",
    "pathfinder-hard",
    "cifar10",
    "cifar100",
    "svhn",
    "imagenet",
)
"""Rows (where their order was not put down) and datasets in the order of the tables; others follow by name."""
PROBES = (
    *("nonlocality", "nonlocality_reference", "attention_entropy", "effective_receptive_field", "impulse_mass"),
    "gating",
)
"""Quantities of probes that records name; others are in `more`."""


@dataclass(frozen=True, eq=False)
class Study:
    """Everything the results folders hold about one study."""

    name: str
    folders: tuple[Path, ...]
    contents: Contents
    layout: Layout
    """The order of the grid's rows, its contrasts and its datasets, as they stand beside the records."""
    contradicted: int = 0
    """Runs that a folder behind the first has with another score or other weights; the first folder's count."""

    @property
    def home(self) -> Path:
        """The folder that what is computed from the study goes to."""
        return home(self.folders) / self.name

    @property
    def order(self) -> list[str]:
        """Labels in the order of the grid's rows; empty where it is not known."""
        return self.layout.rows

    @property
    def contrasts(self) -> list[tuple[str, str]]:
        """The rows that the grid compares: the first minus the second."""
        return self.layout.contrasts

    @cached_property
    def rows(self) -> list[str]:
        """Row labels in the order of the table, those without a finished run included."""

        def place(row: str) -> tuple[int, int, str]:
            return (_rank(row, self.order), _rank(row, ROWS), row)

        return sorted({outcome.row for outcome in self.outcomes}, key=place)

    @cached_property
    def columns(self) -> list[str]:
        """Column labels in the order of the table: datasets, small subsets first."""

        def order(label: str) -> tuple[int, str, float, str]:
            dataset = next(o.spec.dataset for o in self.outcomes if self.column[o.run_id] == label)
            return (_rank(dataset.name, DATASETS), dataset.name, dataset.train_size or float("inf"), label)

        return sorted(set(self.column.values()), key=order)

    @property
    def columns_of_grid(self) -> list[str]:
        """The columns, and a number in place of each dataset of the grid without a run, which has no label yet."""
        return [*self.columns, *map(str, range(len(self.columns), len(self.layout.columns)))]

    @cached_property
    def outcomes(self) -> list[RunRecord | FailureRecord | SkipRecord]:
        """Finished, failed and skipped runs."""
        return [*self.contents.done.values(), *self.contents.failed.values(), *self.contents.skipped.values()]

    @cached_property
    def column(self) -> dict[str, str]:
        """Column label by run_id: the dataset's, and where a cell would mix settings, what tells them apart."""
        return columns({o.run_id: (o.row, o.spec) for o in self.outcomes}, self.contents.done)

    @cached_property
    def metrics(self) -> dict[str, str]:
        """Return the metric of the finished runs of each column, in words: `top-1` or `mean IoU`.

        Raises:
            VitinitError: those of one column are not measured by the same.
        """
        found: dict[str, str] = {}
        for column in self.columns:
            here = {
                registry.metric_label(run.metric)
                for (place, _), runs in self.cells.items()
                if place == column
                for run in runs
            }
            if len(here) > 1:
                raise VitinitError(f"study {self.name!r}: runs on {column} are measured by {' and by '.join(here)}")
            found.update((column, metric) for metric in here)
        return found

    @property
    def measured(self) -> str:
        """Name of the metric of the whole study: `top-1 or mean IoU` where it has both."""
        return " or ".join(sorted(set(self.metrics.values()), reverse=True))

    @cached_property
    def examples(self) -> dict[tuple[str | None, str | None], RunSpec]:
        """The first run's spec by row and column, by row alone (column None) and by column alone (row None)."""
        found: dict[tuple[str | None, str | None], RunSpec] = {}
        for outcome in self.outcomes:
            row, column = outcome.row, self.column[outcome.run_id]
            for key in ((row, column), (row, None), (None, column)):
                found.setdefault(key, outcome.spec)
        return found

    @cached_property
    def cells(self) -> dict[tuple[str, str], list[RunRecord]]:
        """Finished runs by column and row label, in the order of the table; in a cell by seed."""
        found: dict[tuple[str, str], list[RunRecord]] = {(c, r): [] for c in self.columns for r in self.rows}
        for record in sorted(self.contents.done.values(), key=lambda record: record.spec.seed):
            found[self.column[record.run_id], record.row].append(record)
        return {key: runs for key, runs in found.items() if runs}

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per finished run, in the order of the table."""
        import pandas as pd

        order = {name: i for i, name in enumerate([*self.rows, *self.columns])}
        rows = [_run(record, self.column[record.run_id]) for record in self.contents.done.values()]
        rows.sort(key=lambda row: (order[row["column"]], order[row["row"]], row["seed"], row["run_id"]))
        return pd.DataFrame(rows)

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per finished run and epoch after which it was evaluated."""
        import pandas as pd

        lines = [
            (run.run_id, row, column, run.spec.seed, epoch, score)
            for (column, row), runs in self.cells.items()
            for run in runs
            for epoch, score in run.evaluated.items()
        ]
        return pd.DataFrame(lines, columns=["run_id", "row", "column", "seed", "epoch", "score"])

    @cached_property
    def probes(self) -> pd.DataFrame:
        """One row per finished run, probed epoch, quantity, layer and head (1 where a quantity has none), from 1 on."""
        import pandas as pd

        lines = []
        for (column, row), runs in self.cells.items():
            for run in runs:
                for probe in run.probes:
                    measured = {name: getattr(probe, name) for name in PROBES} | probe.more
                    for quantity, layers in measured.items():
                        for layer, heads in enumerate(layers or [], 1):
                            for head, value in enumerate(heads if isinstance(heads, list) else [heads], 1):
                                if value is not None:
                                    where = (run.run_id, row, column, run.spec.seed, probe.epoch)
                                    lines.append((*where, quantity, layer, head, value))
        names = ["run_id", "row", "column", "seed", "epoch", "quantity", "layer", "head", "value"]
        return pd.DataFrame(lines, columns=names)

    @property
    def lower_is_better(self) -> bool:
        """True where a low score is a good one."""
        return any(registry.get(record.metric).lower_is_better for record in self.contents.done.values())

    def by(self, metric: str) -> Study:
        """Return the same study, its scores those of another metric.

        Raises:
            VitinitError: there is no such metric, it is not in percent, or a run does not hold it.
        """
        if metric != "ema_score" and not registry.get(metric).percent:
            raise VitinitError(f"metric {metric!r} is not in percent, as tables and figures are")
        try:
            done = {run_id: record.by(metric) for run_id, record in self.contents.done.items()}
        except VitinitError as error:
            raise VitinitError(f"study {self.name!r}: {error}") from None
        return replace(self, contents=replace(self.contents, done=done))

    def summary(self) -> str:
        """Number of runs read, in a sentence for the terminal."""
        counts = {
            "finished": len(self.contents.done),
            "failed": len(self.contents.failed),
            "skipped": len(self.contents.skipped),
        }
        parts = [f"{number} {state}" for state, number in counts.items() if number or state == "finished"]
        if self.contents.problems:
            parts.append(count(len(self.contents.problems), "invalid file"))
        where = ", ".join(str(folder / self.name) for folder in self.folders)
        return f"Study {self.name}: {', '.join(parts)}, in {where}"

    def require_runs(self) -> None:
        """Raise VitinitError when no run is finished."""
        if not self.contents.done:
            reasons = [f"{run.row} failed: {run.error}: {run.message}" for run in self.contents.failed.values()]
            reasons += [f"{run.row} skipped: {run.reason}" for run in self.contents.skipped.values()]
            reasons += self.contents.problems
            first = f"; first reason: {one_line(reasons[0], 160)}" if reasons else ""
            raise VitinitError(f"study {self.name!r} in {self.folders[0]} holds no finished run{first}")


def mean_distance(side: int) -> float:
    """Return the nonlocality of uniform attention: mean distance of two tokens of a grid, one and itself included."""
    offsets = range(1 - side, side)
    by_offset = (
        (side - abs(down)) * (side - abs(across)) * math.hypot(down, across) for down in offsets for across in offsets
    )
    return sum(by_offset) / side**4


def home(folders: Sequence[Path]) -> Path:
    """Return the output folder: beside the records; for those that come with the project, in `results/local`."""
    first = folders[0]
    return LOCAL / REFERENCE.name if first.resolve().parts[-2:] == REFERENCE.parts else first


def load(results: Sequence[Path] | None = None, study: str | None = None) -> Study:
    """Read one study from results folders.

    Args:
        results: Folders with one subfolder a study. Default: `results/local` when it holds records, otherwise
            `results/reference`. Where one run is in several folders, the first folder wins.
        study: Name. Default: `table2`, then `small`, then the first by name; the first of them with a finished run.

    Raises:
        VitinitError: no such folder, no study at all, or no study of this name.
    """
    if study is not None:
        return load_all(results, study)[0]
    folders, names = _studies(results)
    read = (_study(folders, name) for name in names)
    return next((found for found in read if found.contents.done), _study(folders, names[0]))


def load_all(results: Sequence[Path] | None = None, study: str | None = None) -> list[Study]:
    """Read all studies of results folders, or the one of this name: `table2`, `small`, then the others by name.

    Raises:
        VitinitError: as `load`.
    """
    folders, names = _studies(results)
    if study is not None and study not in names:
        error = unknown_name("study", study, names)
        elsewhere = REFERENCE not in folders and study in Store(REFERENCE).studies()
        raise VitinitError(f"{error}; it is in {REFERENCE}: --results {REFERENCE}") if elsewhere else error
    return [_study(folders, name) for name in names if study in (None, name)]


def _studies(results: Sequence[Path] | None) -> tuple[list[Path], list[str]]:
    """The folders, and the names of the studies in them."""
    folders = list(results) if results else [LOCAL if Store(LOCAL).studies() else REFERENCE]
    for folder in folders if results else []:
        if not folder.is_dir():
            raise VitinitError(f"no results folder {folder}")
    found = {name for folder in folders for name in Store(folder).studies()}
    if not found:
        where = ", ".join(str(folder) for folder in folders) if results else f"{LOCAL} or {REFERENCE}"
        hint = "run a study first (vitinit run small) or name a folder: --results DIR"
        for folder in folders:
            if Store(folder).strays():
                hint = f"is it the folder of one study? --results {folder.parent} --study {folder.name}"
        raise VitinitError(f"no records in {where}; {hint}")
    return folders, sorted(found, key=lambda name: (_rank(name, PREFERRED_STUDIES), name))


def _study(folders: Sequence[Path], name: str) -> Study:
    contents, layout, contradicted = _read(folders, name)
    return Study(name, tuple(folders), contents, layout, contradicted)


def _read(folders: Sequence[Path], study: str) -> tuple[Contents, Layout, int]:
    """The records of all folders, and the layout: the first folder's, then what others have besides."""
    merged, layout, contradicted = Contents(), Layout(), set[str]()
    for folder in folders:
        store = Store(folder)
        found = store.read(study)
        try:
            layout = layout.before(store.layout(study))
        except VitinitError as error:
            found.problems.append(str(error))
        for run_id in found.done.keys() & merged.done.keys():
            first, second = merged.done[run_id], found.done[run_id]
            if (first.score, first.weights) != (second.score, second.weights):
                contradicted.add(run_id)
        merged.done = found.done | merged.done
        merged.failed = found.failed | merged.failed
        merged.skipped = found.skipped | merged.skipped
        # Relative paths, so that a table's bytes do not depend on where the checkout is.
        merged.problems += [one_line(problem.removeprefix(f"{folder}/"), 200) for problem in found.problems]
    merged.settle()
    return merged, layout, len(contradicted)


def _rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def _run(record: RunRecord, column: str) -> dict[str, Any]:
    spec = record.spec
    return {
        "run_id": record.run_id,
        "study": record.study,
        "row": record.row,
        "column": column,
        "dataset_label": spec.dataset.label,
        "dataset": spec.dataset.name,
        "train_images": record.dataset.train,
        "checksum": record.dataset.checksum,
        "model": spec.model.describe(),
        "seed": spec.seed,
        "split": spec.dataset.evaluate_on,
        "lr": spec.recipe.lr,
        "epochs": spec.recipe.epochs,
        "precision": spec.recipe.precision,
        "metric": registry.metric_label(record.metric),
        "score": record.score,
        "best_score": record.best[1],
        "init_seconds": record.init.seconds,
        "commit": record.environment.get("commit"),
        "dirty": record.environment.get("dirty"),
        "device": record.execution.get("device"),
        "hardware": record.environment.get("gpu") or record.environment.get("processor"),
    }
