"""Records of one study as a pandas table: one row per run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from vitinit.analysis.tables.render import template
from vitinit.benchmark.contrasts import Analysis, Contrast
from vitinit.benchmark.metrics import registry
from vitinit.benchmark.records.record import FailureRecord, RunRecord, SkipRecord
from vitinit.benchmark.records.store import LOCAL, REFERENCE, Contents, Layout, Store
from vitinit.benchmark.settings import column_parts, columns, joined
from vitinit.benchmark.spec import RunSpec
from vitinit.initializers import plugins
from vitinit.initializers.errors import VitinitError, plain, unknown_name

COLUMNS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("columns.yaml").read_text(encoding="utf-8"))
"""Order of rows, datasets and studies; columns of the table of runs, and of a table's CSV."""


@dataclass(frozen=True, eq=False)
class Study:
    """Everything the results folders hold about one study."""

    name: str
    folders: tuple[Path, ...]
    contents: Contents
    layout: Layout
    """The order of the grid's rows, its contrasts and its datasets, as they stand beside the records."""
    when: str = "last"
    """Epoch of the scores: `last`, or `best`, which selects on what it measures."""
    baseline: str | None = None
    """Row that differences are to; None: each row's own base."""

    def out(self, asked: Path | None, name: str, alone: bool) -> Path:
        """Return the folder to write to: below the one asked for, if several studies share it, one of its own."""
        return asked / ("" if alone else self.name) if asked else beside(home(self.folders) / self.name, name)

    @property
    def contrasts(self) -> list[Contrast]:
        """The comparisons that the grid names, but for rows that neither it nor a record has, as before a new name."""
        known = {*self.layout.runs.values(), *self.rows}
        return [contrast for contrast in self.layout.contrasts if not self.layout.runs or known >= {*contrast.weights}]

    @property
    def part(self) -> str:
        """Number of the grid's runs that have ended, as `20 of the grid's 32 runs`; empty if all have."""
        ended = sum(self.layout.has(run.spec) for run in self.outcomes)
        return f"{ended} of the grid's {self.layout.planned} runs" if ended < self.layout.planned else ""

    @property
    def pairs(self) -> dict[str, tuple[str, str]]:
        """Those of two rows, by name: the first minus the second."""
        return {contrast.name: contrast.pair for contrast in self.contrasts if contrast.pair}

    @cached_property
    def rows(self) -> list[str]:
        """Row labels in the order of the table, those without a finished run included."""
        order = [*self.layout.rows, *COLUMNS["order"]["rows"]]
        return sorted({outcome.row for outcome in self.outcomes}, key=lambda row: (_rank(row, order), row))

    @cached_property
    def columns(self) -> list[str]:
        """Column labels in the order of the table: datasets, small subsets first."""

        def order(label: str) -> tuple[int, str, float, str]:
            dataset = self.examples[None, label].dataset
            return (
                _rank(dataset.name, COLUMNS["order"]["datasets"]),
                dataset.name,
                dataset.train_size or float("inf"),
                label,
            )

        return sorted(set(self.column.values()), key=order)

    @cached_property
    def outcomes(self) -> list[RunRecord | FailureRecord | SkipRecord]:
        """Finished, failed and skipped runs."""
        return [*self.contents.done.values(), *self.contents.failed.values(), *self.contents.skipped.values()]

    @cached_property
    def column(self) -> dict[str, str]:
        """Column label by run_id: the dataset's, and where a cell would mix settings, what tells them apart."""
        return columns({o.run_id: (o.row, o.spec) for o in self.outcomes}, self.contents.done)

    @cached_property
    def parts(self) -> dict[str, list[str]]:
        """Names of each column in parts: `CIFAR-10`, `5,000 images`, `redrawn`."""
        return column_parts({column: self.examples[None, column].dataset for column in self.columns})

    @cached_property
    def names(self) -> dict[str, str]:
        """Name of each column for people: `CIFAR-10 (5,000 images, redrawn)` for `cifar10[5000, redrawn]`."""
        return {column: joined(parts) for column, parts in self.parts.items()}

    @cached_property
    def heads(self) -> tuple[str, dict[str, str]]:
        """Part of the names that all columns share, empty where there is none; and the rest of each name, by column."""
        common, *heads = template("heads.txt.j2", parts=list(self.parts.values())).splitlines()
        return common, dict(zip(self.names, heads, strict=True))

    def note(self, name: str, **values: Any) -> list[str]:
        """Return the lines of a template of `tables/templates`, filled in with this study and values."""
        return self.printed(template(f"{name}.txt.j2", study=self, **values)).splitlines()

    def printed(self, text: str) -> str:
        """Return a text with the names of columns in place of their labels."""
        for column in sorted(self.names, key=len, reverse=True):
            text = text.replace(column, self.names[column])
        return text

    @cached_property
    def metrics(self) -> dict[str, str]:
        """Metric of the finished runs of each column, in words: `top-1` or `mean IoU`.

        Raises:
            VitinitError: those of one column are not measured by the same.
        """
        metrics = {}
        for column, names in self.runs.groupby("column", sort=False)["metric"].unique().items():
            if len(names) > 1:
                raise VitinitError(f"study {self.name!r}: runs on {column} are measured by {' and by '.join(names)}")
            metrics[str(column)] = names[0]
        return metrics

    @property
    def measured(self) -> str:
        """Name of the metric of the whole study: `top-1 or mean IoU` where it has both."""
        return " or ".join(sorted(set(self.metrics.values()), reverse=True))

    @property
    def score(self) -> str:
        """Name of the scores: `test top-1`, `validation top-1`, or `top-1` where some are of either."""
        split = tuple(self.runs["split"].unique())
        return {("test",): "test ", ("val",): "validation "}.get(split, "") + self.measured

    @cached_property
    def examples(self) -> dict[tuple[str | None, str | None], RunSpec]:
        """The first run's spec by row and column, by row alone (column None) and by column alone (row None)."""
        examples: dict[tuple[str | None, str | None], RunSpec] = {}
        for outcome in self.outcomes:
            row, column = outcome.row, self.column[outcome.run_id]
            for key in ((row, column), (row, None), (None, column)):
                examples.setdefault(key, outcome.spec)
        return examples

    @cached_property
    def cells(self) -> dict[tuple[str, str], list[RunRecord]]:
        """Finished runs by column and row label, in the order of the table; in a cell by seed."""
        by_cell: dict[tuple[str, str], list[RunRecord]] = {(c, r): [] for c in self.columns for r in self.rows}
        for record in sorted(self.contents.done.values(), key=lambda record: (record.spec.seed, record.run_id)):
            by_cell[self.column[record.run_id], record.row].append(record)
        return {key: runs for key, runs in by_cell.items() if runs}

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per finished run, in the order of the table."""
        lines = [
            {
                **{name: attrgetter(path)(run) for name, path in COLUMNS["runs"].items()},
                "row": row,
                "column": column,
                "dataset": run.spec.dataset.at_any_size + column.removeprefix(run.spec.dataset.label),
                "model": run.spec.model.describe(),
                "metric": registry.metric_label(run.metric),
                "score": run.best[1] if self.when == "best" else run.score,
                "commit": (run.environment.get("commit") or "unknown")[:10],
                "source": run.environment.get("source"),
                "device": run.execution.get("device"),
                "hardware": run.environment.get("gpu") or run.environment.get("processor"),
            }
            for (column, row), runs in self.cells.items()
            for run in runs
        ]
        return pd.DataFrame(lines)

    @cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per finished run and epoch after which it was evaluated."""
        lines = [
            (run.run_id, row, column, run.spec.seed, epoch, score)
            for (column, row), runs in self.cells.items()
            for run in runs
            for epoch, score in run.evaluated.items()
        ]
        return pd.DataFrame(lines, columns=["run_id", "row", "column", "seed", "epoch", "score"])

    @cached_property
    def lower_is_better(self) -> set[str]:
        """Columns in which a low score is a good one."""
        return {column for (column, _), runs in self.cells.items() if registry.get(runs[0].metric).lower_is_better}

    def by(self, metric: str) -> Study:
        """Return the same study with the scores of the `last` or `best` epoch, or of another metric: without a test.

        Raises:
            VitinitError: there is no such metric, it is not in percent, or a run does not hold it.
        """
        if metric == self.when or {run.metric for run in self.contents.done.values()} == {metric}:
            return self
        other = replace(self, layout=self.layout.model_copy(update={"analysis": Analysis(test="none")}))
        if metric in ("last", "best"):
            return replace(other, when=metric)
        if metric != "ema_score" and not registry.get(metric).percent:
            raise VitinitError(f"metric {metric!r} is not in percent, as tables and figures are")
        try:
            done = {run_id: record.by(metric) for run_id, record in self.contents.done.items()}
        except VitinitError as error:
            raise VitinitError(f"study {self.name!r}: {error}") from None
        return replace(other, contents=replace(self.contents, done=done))

    def require_runs(self) -> None:
        """Raise VitinitError when no run is finished."""
        if not self.contents.done:
            raise VitinitError(self.note("no_runs")[0])


def metric_name(text: str) -> str:
    """Return the name of a metric, which may be in a file of one's own: `file.py:NAME`."""
    if plugins.in_a_file(text):
        return registry.REGISTRY.load(plugins.load(plugins.pinned(text, Path.cwd())), text).name
    return text


def home(folders: Sequence[Path]) -> Path:
    """Return the output folder: beside the records; for those that come with the project, in `results/local`."""
    return LOCAL / REFERENCE.name if is_reference(folders[0]) else folders[0]


def is_reference(folder: Path) -> bool:
    """Return True if a folder has the records that come with the project."""
    return folder.resolve().parts[-2:] == REFERENCE.parts


def beside(study: Path, name: str) -> Path:
    """Return a folder for output beside records.

    Raises:
        VitinitError: it is a link, which may be somebody else's: what is written would land where it leads to.
    """
    for folder in (study, study / name):
        if folder.is_symlink():
            raise VitinitError(f"{folder} is a link: remove it, or write elsewhere with --out")
    return study / name


def load(results: Sequence[Path] | None = None, study: str | None = None, baseline: str | None = None) -> Study:
    """Read the study of this name, or the first one with a finished run; see `load_all`."""
    studies = load_all(results, study, baseline)
    return next((loaded for loaded in studies if loaded.contents.done), studies[0])


def load_all(
    results: Sequence[Path] | None = None, study: str | None = None, baseline: str | None = None
) -> list[Study]:
    """Read all studies of results folders, or the one of this name: `table2`, `small`, then the others by name.

    Args:
        results: Folders with one subfolder a study. Default: `results/local` when it holds records, otherwise
            `results/reference`. Where one run is in several folders, the first folder wins.
        study: Name.
        baseline: Row that differences are to, in the studies that have it.

    Raises:
        VitinitError: no such folder, no study at all, no study of this name, or no such row in any of them.
    """
    folders = list(results) if results else [LOCAL if Store(LOCAL).studies() else REFERENCE]
    for folder in results or ():
        if not folder.is_dir():
            raise VitinitError(f"no results folder {folder}")
    known = {name for folder in folders for name in Store(folder).studies()}
    if not known:
        hint = "run a study first (vitinit run small) or name a folder: --results DIR"
        for folder in folders:
            if Store(folder).strays():
                hint = f"is it the folder of one study? --results {folder.parent} --study {folder.name}"
        raise VitinitError(f"no records in {', '.join(map(str, folders))}; {hint}")
    if study is not None and study not in known:
        error = unknown_name("study", study, known)
        elsewhere = REFERENCE not in folders and study in Store(REFERENCE).studies()
        raise VitinitError(f"{error}; it is in {REFERENCE}: --results {REFERENCE}") if elsewhere else error
    names = sorted(known, key=lambda name: (_rank(name, COLUMNS["order"]["studies"]), name))
    studies = [_study(folders, name) for name in names if study in (None, name)]
    rows = {run.row for loaded in studies for run in loaded.contents.done.values()}
    if baseline is not None and baseline not in rows:
        raise unknown_name("baseline row", baseline, rows)
    return [replace(loaded, baseline=baseline) if baseline in loaded.rows else loaded for loaded in studies]


def _study(folders: Sequence[Path], name: str) -> Study:
    """Merge the records and layouts of all folders; the first folder wins."""
    merged, layout = Contents(), Layout()
    for folder in folders:
        store = Store(folder)
        stored = store.read(name)
        try:
            layout = layout.before(store.layout(name))
        except VitinitError as error:
            stored.problems.append(str(error))
        merged.done = stored.done | merged.done
        merged.failed = stored.failed | merged.failed
        merged.skipped = stored.skipped | merged.skipped
        # Relative paths, so that a table's bytes do not depend on where the checkout is.
        merged.problems += [plain(problem.removeprefix(f"{folder}/"), 200) for problem in stored.problems]
    merged.drop_superseded()
    for outcomes in (merged.failed, merged.skipped):
        for run_id, outcome in list(outcomes.items()):
            if not layout.has(outcome.spec):
                del outcomes[run_id]
                merged.gone += 1
    merged.relabel(layout)
    return Study(name, tuple(folders), merged, layout)


def _rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)
