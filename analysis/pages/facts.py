"""Numbers of a study, in the form in which the template of a page asks for them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from vitinit.analysis import frame
from vitinit.analysis.choose import Choice, Value, choose, order
from vitinit.analysis.comparison import LEVEL, Comparison, compare, named
from vitinit.analysis.figures.registry import FIGURES
from vitinit.analysis.rows import own_bases, values_by_seed
from vitinit.analysis.stats import Estimate
from vitinit.analysis.tables.registry import build
from vitinit.analysis.tables.render import to_markdown
from vitinit.analysis.text import number
from vitinit.benchmark.records.store import REFERENCE
from vitinit.initializers.errors import VitinitError, unknown_name


class Facts:
    """Facts of one study, from its records, for its page."""

    def __init__(self, study: frame.Study) -> None:
        study.require_runs()
        self.study = study
        self.name = study.name
        self.bases = own_bases(study)

    def by_seed(self, row: str, column: str | None = None, epoch: int = 0) -> pd.Series[float]:
        """Return the scores of a cell by seed, in percent, after an epoch (0: the last)."""
        values = values_by_seed(self.study, epoch=epoch)
        if not (places := [place for label, place in values if label == row]):
            raise unknown_name(
                f"row of study {self.name}{f' after epoch {epoch}' if epoch else ''}", row, self.study.rows
            )
        return values[row, self.place(f"row {row!r}", column, places)]

    def place(self, what: str, column: str | None, places: Iterable[str]) -> str:
        """Return the column that is asked for, or the only one."""
        places = list(dict.fromkeys(places))
        if column is None and len(places) != 1:
            raise VitinitError(f"study {self.name}, {what}: name one of its columns: {', '.join(places)}")
        if column is not None and column not in places:
            raise unknown_name(f"column of study {self.name}, {what},", column, places)
        return column or places[0]

    def score(self, row: str, column: str | None = None, epoch: int = 0, digits: int = 2) -> str:
        """Return mean and sample standard deviation over seeds: `65.55 ± 0.70`."""
        return spread(self.by_seed(row, column, epoch), digits)

    def gain(
        self,
        row: str,
        over: str,
        column: str | None = None,
        epoch: int = 0,
        seeds: Iterable[int] | None = None,
        digits: int = 2,
    ) -> Comparison:
        """Return a row minus another one, by seed: with the interval and test of the grid, if that names it.

        Args:
            row: The first row.
            over: The second row.
            column: Column of both; None where each has one only.
            epoch: After which; 0 for the last.
            seeds: These only; None for all that both have.
            digits: Decimals.
        """
        self.by_seed(over, column, epoch)
        self.by_seed(row, column, epoch)
        place = self.place(f"row {row!r}", column, [place for place, label in self.study.cells if label == row])
        comparison = compare(self.study, (row, over), place, epoch=epoch, seeds=seeds)
        if not comparison:
            raise VitinitError(f"study {self.name}: {row} and {over} have no seed in common")
        return replace(comparison, digits=digits)

    def contrast(self, name: str, column: str | None = None, epoch: int = 0) -> Comparison | None:
        """Return a comparison of the grid by its name, `Mimetic − Kaiming uniform`; after an epoch, or the last."""
        known = {contrast.name: contrast for contrast in self.study.contrasts}
        if name not in known:
            raise unknown_name(f"contrast of study {self.name}", name, known)
        place = self.place(f"contrast {name!r}", column, [place for label, place in named(self.study) if label == name])
        return compare(self.study, known[name], place, epoch=epoch) if epoch else named(self.study).get((name, place))

    def contrasts(self, family: str | None = None) -> list[tuple[str, str]]:
        """Return name and column of what the grid named and has an interval, of one family or of all."""
        return [key for key, its in named(self.study).items() if its.verdict and family in (None, its.family)]

    def field(self, path: str, row: str | None = None, column: str | None = None, epoch: int | None = None) -> float:
        """Return a number of the records, averaged over runs, and over layers and heads where it is a list.

        Args:
            path: As `init.real_images.mass` or `init.norms.0.query` (first layer); with `epoch`, of the probe after it:
                `nonlocality`.
            row: Label; None for all runs.
            column: None for all columns.
            epoch: Of the probes; 0 for the start, −1 for the last.
        """
        numbers = []
        for (place, label), runs in self.study.cells.items():
            for run in runs if row in (None, label) and column in (None, place) else ():
                measured: Any = run
                if epoch is not None:
                    probes = {probe.epoch: probe for probe in run.probes}
                    measured = probes.get(max(probes, default=0) if epoch == -1 else epoch)
                if leaves := list(_leaves(measured, path.split("."))):
                    numbers.append(float(np.mean(leaves)))
        if not numbers:
            raise VitinitError(f"study {self.name}: no record of row {row!r} holds {path}")
        return float(np.mean(numbers))

    def texts(self, path: str, times: float = 1, digits: int = 1, column: str | None = None) -> dict[str, str]:
        """Return a number of the records by row, as `field` gives it, for rows that have it.

        Args:
            path: As of `field`.
            times: Factor: 100 for a share in percent.
            digits: Decimals.
            column: None for all columns.
        """
        texts = {}
        for row in self.study.rows:
            with suppress(VitinitError):
                texts[row] = number(times * self.field(path, row, column), digits)
        return texts

    def table(self, ending: str = "", gain: bool = False, baseline: str | None = None) -> str:
        """Return a table of the study as Markdown, its caption below it.

        Args:
            ending: Name behind that of the study: `_contrasts`, `_epochs`; empty for the study's own.
            gain: Differences, too.
            baseline: Row that these are to; None: each row's own base.
        """
        table = build(replace(self.study, baseline=baseline), self.name + ending, gain)
        caption, _, text = to_markdown(table).partition("\n\n")
        return f"{text.strip()}\n\n<sub>{caption.strip()}</sub>"

    def draws(self, figure: str) -> bool:
        """Return True if the records give this figure."""
        return bool(FIGURES.get(figure).figures(self.study))

    @cached_property
    def chosen(self) -> tuple[list[str], list[Choice]]:
        """Fields that a tuning study chooses, and the choice of each row."""
        return choose(self.study)

    @property
    def tried(self) -> list[Value]:
        """Values of the chosen fields, as `choose` orders them."""
        return sorted({tried.value for choice in self.chosen[1] for tried in (choice.best, *choice.others)}, key=order)

    @property
    def folder(self) -> str:
        """Results folder for a command line: as given, but for the committed records the path in a clone."""
        first = self.study.folders[0]
        return shlex.quote((REFERENCE if frame.is_reference(first) else first).as_posix())

    @property
    def file(self) -> str:
        """File of the grid for a command line: where `vitinit.run` writes it, or its name."""
        own = self.study.folders[0] / f"{self.name}.yaml"
        return shlex.quote(own.as_posix() if own.exists() else own.name)


def spread(scores: Any, digits: int = 2) -> str:
    """Write the mean and the sample standard deviation of scores."""
    std = f" ± {np.std(scores, ddof=1):.{digits}f}" if len(scores) > 1 else ""
    return f"{number(float(np.mean(scores)), digits)}{std}"


def detectable(n: int, std: float) -> float:
    """Return the difference that a paired t test of n seeds finds, by the standard deviation of differences by seed."""
    return Estimate(n=n, mean=0, std=std, df=n - 1).detects(LEVEL)


def short(value: Any) -> str:
    """Write a number as recipes have it: `3e-4`, `0.05`."""
    if isinstance(value, float) and 0 < value < 0.02:
        digits, _, power = f"{value:.6e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    if value is None:
        return "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _leaves(value: Any, path: Sequence[str]) -> Iterator[float]:
    """Yield the numbers at a path of a record; on a list, a name is that of each of its entries."""
    if isinstance(value, list | tuple) and path and path[0].isdigit():
        yield from _leaves(value[int(path[0])], path[1:])
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _leaves(entry, path)
    elif path and value is not None:
        yield from _leaves(value.get(path[0]) if isinstance(value, dict) else getattr(value, path[0]), path[1:])
    elif value is not None:
        yield float(value)
