"""Numbers of a study, in the form in which the template of a page asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vitinit.analysis import frame, gains
from vitinit.analysis.choose import Choice, choose
from vitinit.analysis.gains import Contrast, label
from vitinit.analysis.pages.difference import Difference
from vitinit.analysis.tables.registry import build
from vitinit.analysis.tables.render import to_markdown
from vitinit.analysis.tables.shared import own_bases
from vitinit.analysis.text import count, escape_markdown, number, p_written, signed
from vitinit.initializers.errors import VitinitError, unknown_name

if TYPE_CHECKING:
    import pandas as pd


NAMES = {"lr": "learning rate"}
"""Fields of a recipe in words."""


class Facts:
    """Facts of one study, from its records, for its page."""

    def __init__(self, study: frame.Study) -> None:
        study.require_runs()
        self.study = study
        self.name = study.name
        self.title = study.layout.title or study.name

    def by_seed(self, row: str, column: str | None = None, epoch: int = 0) -> pd.Series[float]:
        """Return the scores of a cell by seed, in percent, after an epoch (0: the last)."""
        if row not in self.study.rows:
            raise unknown_name(f"row of study {self.name}", row, self.study.rows)
        runs = self.study.epochs if epoch else self.study.runs
        runs = runs[runs["row"] == row]
        place = self._place(f"row {row!r}", column, list(dict.fromkeys(runs["column"])))
        runs = runs[(runs["column"] == place) & (not epoch or runs.get("epoch") == epoch)]
        if not len(runs):
            raise VitinitError(f"study {self.name}, row {row!r}: no run was evaluated after epoch {epoch}")
        return runs.set_index("seed")["score"]

    def _place(self, what: str, column: str | None, places: Sequence[str]) -> str:
        """Return the column that is asked for, or the only one."""
        if column is None and len(places) != 1:
            raise VitinitError(f"study {self.name}, {what}: name one of its columns: {', '.join(places)}")
        if column is not None and column not in places:
            raise unknown_name(f"column of study {self.name}, {what},", column, places)
        return column or places[0]

    def score(self, row: str, column: str | None = None, epoch: int = 0, digits: int = 2) -> str:
        """Return mean and sample standard deviation over seeds: `65.55 ± 0.70`."""
        return _mean_and_spread(list(self.by_seed(row, column, epoch)), digits)

    def gain(
        self,
        row: str,
        over: str,
        column: str | None = None,
        epoch: int = 0,
        seeds: Iterable[int] | None = None,
        over_column: str | None = None,
        digits: int = 2,
    ) -> Difference:
        """Return a row minus another one, by seed; a gain is positive, in an error too.

        Args:
            row: The first row.
            over: The second row.
            column: Column of both; None where each has one only.
            epoch: After which; 0 for the last.
            seeds: These only; None for all that both have.
            over_column: Column of the second row where it is another one.
            digits: Decimals.
        """
        first, second = self.by_seed(row, column, epoch), self.by_seed(over, over_column or column, epoch)
        d = (-1 if self.study.lower_is_better else 1) * (first - second).dropna().sort_index()
        where = (f" on {column}" if column else "") + (f" after epoch {epoch}" if epoch else "")
        return Difference(f"{row} − {over}{where}", d if seeds is None else d[d.index.isin(list(seeds))], digits)

    def average(self, row: str, over: str, places: Iterable[str]) -> Difference:
        """Return the mean over columns of a row minus another one, by seed."""
        each = [self.gain(row, over, column).by_seed for column in places]
        return Difference(f"{row} − {over}, mean over columns", sum(each[1:], each[0]) / len(each))

    def contrast(self, first: str, second: str, column: str | None = None) -> Contrast:
        """Return the cell of a comparison that the grid named: p by Holm, pooled interval, detectable effect."""
        cells, name = self._contrast_cells, label((first, second))
        places = [place for its, place in cells if its == name]
        if not places:
            raise unknown_name(f"contrast of study {self.name}", name, {its for its, _ in cells})
        return cells[name, self._place(f"contrast {name!r}", column, places)]

    @cached_property
    def _contrast_cells(self) -> dict[tuple[str, str], Contrast]:
        """Comparisons that the grid named and that have runs, by contrast and column."""
        return gains.contrasts(self.study).tested

    @property
    def contrasts(self) -> list[tuple[str, str, str]]:
        """Comparisons that the grid named and that have an interval: first row, second row, column."""
        pairs = {label(pair): pair for pair in self.study.contrasts}
        order = [(name, column) for name in pairs for column in self.study.columns]
        cells = [(key, self._contrast_cells.get(key)) for key in order]
        return [(*pairs[name], column) for (name, column), it in cells if it and it.against.interval]

    def p(self, first: str, second: str, column: str | None = None) -> str:
        """Return p of a comparison that the grid named: sign-flip test, Holm over all of them."""
        return f"p = {_p(self.contrast(first, second, column).p)}".replace("= <", "<")

    def planned(self, first: str, second: str, column: str | None = None) -> Difference:
        """Return a named comparison with the pooled interval, for grids that name it as the primary one."""
        return replace(self.gain(first, second, column), pooled=self.contrast(first, second, column).pooled)

    def detectable(self, column: str | None = None) -> str:
        """Return the smallest detectable effect of the comparisons that the grid named, in points."""
        place = self._place("contrasts", column, self.study.columns)
        sizes = [cell.detectable for (_, its), cell in self._contrast_cells.items() if its == place]
        return number(max(size for size in sizes if size))

    def field(self, path: str, row: str | None = None, column: str | None = None, epoch: int | None = None) -> float:
        """Return a number of the records, averaged over runs, and over layers and heads where it is a list.

        Args:
            path: As `init.real_images.mass` or `init.norms.0.query` (first layer); with `epoch`, of the probe after it:
                `nonlocality`.
            row: Label; None for all runs.
            column: None for all columns.
            epoch: Of the probes; 0 for the start, −1 for the last.
        """
        numbers = self._numbers(path, row, column, epoch)
        if not numbers:
            raise VitinitError(f"study {self.name}: no record of row {row!r} holds {path}")
        return float(np.mean(numbers))

    def _numbers(self, path: str, row: str | None, column: str | None, epoch: int | None = None) -> list[float]:
        numbers = []
        for (place, its), runs in self.study.cells.items():
            for run in runs if row in (None, its) and column in (None, place) else ():
                part: Any = run
                if epoch is not None:
                    probes = {probe.epoch: probe for probe in run.probes}
                    part = probes.get(max(probes, default=0) if epoch == -1 else epoch)
                if leaves := list(_leaves(part, path.split("."))):
                    numbers.append(float(np.mean(leaves)))
        return numbers

    def texts(self, path: str, times: float = 1, digits: int = 1, column: str | None = None) -> dict[str, str]:
        """Return a number of the records by row, as `field` gives it, for rows that have it.

        Args:
            path: As of `field`.
            times: Factor: 100 for a share in percent.
            digits: Decimals.
            column: None for all columns.
        """
        numbers = {row: self._numbers(path, row, column) for row in self.study.rows}
        return {row: number(times * float(np.mean(its)), digits) for row, its in numbers.items() if its}

    def recipe(self, name: str) -> dict[str, str]:
        """Return a field of the recipe by row: `3e-3`."""
        return {
            row: " or ".join(dict.fromkeys(_short(getattr(run.spec.recipe, name)) for run in runs))
            for (_, row), runs in self.study.cells.items()
        }

    def ranked(self, without: str) -> list[str]:
        """Return the rows of a study with one column by falling mean, but those whose label ends with these words."""
        rows = (row for row in self.study.rows if not row.endswith(without))
        return sorted(rows, key=lambda row: -self.by_seed(row).mean())

    def masked(self, term: str | None, digits: int = 2) -> dict[str, str]:
        """Return top-1 of trained ConViTs by row, with a term of the attention left out of all GPSA layers.

        Args:
            term: `content` or `position`; None for the whole model, on the same images.
            digits: Decimals.
        """
        found = {}
        for (_, row), runs in self.study.cells.items():
            layers = [[one for one in run.masked if term in (None, one.term)] for run in runs if run.masked]
            all_layers = [max(its, key=lambda one: one.layers) for its in layers]
            if all_layers:
                found[row] = _mean_and_spread([one.top1 if term else one.top1_whole for one in all_layers], digits)
        return found

    def table(self, ending: str = "", gain: bool = False, baseline: str | None = None) -> str:
        """Return a table of the study as Markdown, its caption below it.

        Args:
            ending: Name behind that of the study: `_contrasts`, `_epochs`; empty for the study's own.
            gain: Differences, too.
            baseline: Row that these are to; None: each row's own base.
        """
        table = build(self.study, self.name + ending, baseline=baseline, gain=gain)
        caption, _, text = to_markdown(table).partition("\n\n")
        return f"{text.strip()}\n\n<sub>{caption.strip()}</sub>"

    def comparisons(self, epochs: Iterable[int] = (), pooled: bool = False) -> str:
        """Return the comparisons that the grid named as a Markdown table: difference, interval and p.

        Args:
            epochs: Columns for differences after these epochs, in front of that after the last.
            pooled: True where the grid names the pooled interval and test as primary, in the place of Student's
                interval and the sign-flip test.
        """
        ends = ["last epoch, pooled", "pooled p"] if pooled else ["last epoch", "p"]
        lines = [["comparison", *(f"epoch {epoch}" for epoch in epochs), *ends]]
        for first, second, column in self.contrasts:
            name = f"{first} − {second}" + (f", {column}" if len(self.study.columns) > 1 else "")
            earlier = [self.gain(first, second, column, epoch).short for epoch in epochs]
            cell = self.contrast(first, second, column)
            last = (self.planned if pooled else self.gain)(first, second, column)
            p = _p(cell.pooled_p if pooled else cell.p)
            lines.append([escape_markdown(name), *earlier, last.short, p])
        return _pipe(lines)

    def gains_table(
        self,
        rows: Iterable[str],
        over: dict[str, str],
        column: str | None = None,
        bases: dict[str, str] | None = None,
        **more: dict[str, str],
    ) -> str:
        """Return a Markdown table of scores and of differences to other rows.

        Args:
            rows: Lines, in order.
            over: Head of a column of differences: the row that they are to; in it `{row}` stands for the line's own,
                `{base}` for that of its base. A row that is not there, or the line's own, leaves the cell empty.
            column: Of the study; None where it has one only.
            bases: Row that stands for the base of a row, where it is another model.
            more: Head of a further column: its texts by row.
        """
        column = self._place("table", column, self.study.columns)
        bases = own_bases(self.study) | (bases or {})
        lines = [["", self.study.metrics[column], *over, *map(escape_markdown, more)]]
        for row in rows:
            line = [escape_markdown(row), self.score(row, column)]
            for other in (name.format(row=row, base=bases.get(row, row)) for name in over.values()):
                there = other != row and (column, other) in self.study.cells
                line.append(self.gain(row, other, column).short if there else "")
            lines.append([*line, *(texts.get(row, "") for texts in more.values())])
        return _pipe(lines)

    def over_epochs(self, rows: list[str], epochs: list[int], column: str | None = None) -> str:
        """Return a Markdown table of scores after some epochs."""
        lines = [[escape_markdown(row), *(self.score(row, column, epoch) for epoch in epochs)] for row in rows]
        return _pipe([["", *(f"epoch {epoch}" for epoch in epochs)], *lines])

    def choices(self) -> str:
        """Return the choice of a tuning study as a Markdown table: scores at each value, the best bold, its lead."""
        _, choices = self._chosen
        values = sorted({each.value for choice in choices for each in (choice.best, *choice.others)})
        lines = [["", *(self._value(value) for value in values), "lead of the best"]]
        for choice in choices:
            tried = {each.value: each.scores for each in (choice.best, *choice.others)}
            texts = {value: _mean_and_spread(list(its.values())) for value, its in tried.items()}
            texts[choice.best.value] = f"**{texts[choice.best.value]}**"
            lead = signed(float(np.mean(choice.lead))) if choice.lead else ""
            lines.append([escape_markdown(choice.row), *(texts.get(value, "diverged") for value in values), lead])
        return _pipe(lines)

    def chosen(self) -> str:
        """Return what a tuning study chose in one sentence."""
        _, choices = self._chosen
        rows: dict[str, list[str]] = {}
        for choice in choices:
            rows.setdefault(self._value(choice.best.value), []).append(choice.row)
        if len(rows) == 1:
            return f"{next(iter(rows))} for every row."
        most = max(rows, key=lambda value: len(rows[value]))
        others = "; ".join(f"{value} for {', '.join(its)}" for value, its in rows.items() if value != most)
        return f"{most} for {len(rows[most])} of {len(choices)} rows; {escape_markdown(others)}."

    @property
    def tuned(self) -> str:
        """Fields that a tuning study chooses, in words."""
        return " and ".join(NAMES.get(name, name) for name in self._chosen[0])

    def edges(self) -> list[str]:
        """Rows whose best value is the smallest or the largest of those tried."""
        return [choice.row for choice in self._chosen[1] if choice.edge]

    @cached_property
    def _chosen(self) -> tuple[list[str], list[Choice]]:
        return choose(self.study)

    def _value(self, value: tuple[Any, ...]) -> str:
        """One value of the fields that are chosen: `lr 1e-3`."""
        names = zip(self._chosen[0], value, strict=True)
        return ", ".join(f"{NAMES.get(name, name)} {_short(each)}" for name, each in names)

    @property
    def validation_error(self) -> float:
        """Standard error of one validation top-1 by the number of images, in points, at the mean of the best scores."""
        images = next(iter(self.study.contents.done.values())).dataset.val or 1
        p = np.mean([choice.best.mean for choice in self._chosen[1]]) / 100
        return float(100 * (p * (1 - p) / images) ** 0.5)

    def figure(self, name: str, alt: str) -> str:
        """Return a picture as Markdown: one that `analysis.figures` or `analysis.curves` draws under this name."""
        return f"![{alt}](figures/{name})"

    @property
    def folder(self) -> str:
        """Results folder for a command line: as given, but for the committed records the path in a clone."""
        first = self.study.folders[0]
        return (frame.REFERENCE if first.resolve().parts[-2:] == frame.REFERENCE.parts else first).as_posix()

    @property
    def runs(self) -> int:
        """Number of finished runs."""
        return len(self.study.contents.done)

    @property
    def seeds(self) -> str:
        """Seeds in words: `0 to 7`, or each where they are not in line."""
        seeds = sorted({run.spec.seed for run in self.study.contents.done.values()})
        if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
            return f"{seeds[0]} to {seeds[-1]}"
        return ", ".join(map(str, seeds))

    @property
    def setting(self) -> list[str]:
        """Return the protocol of the study, one line each: data, model, training, seeds, where."""
        runs = list(self.study.contents.done.values())
        specs = [run.spec for run in runs]
        parameters = sorted({run.parameters for run in runs})
        between = " to ".join(f"{number:,}" for number in dict.fromkeys([parameters[0], parameters[-1]]))
        processors = (run.environment.get("gpu") or run.environment.get("processor") or "unknown" for run in runs)
        commits = dict.fromkeys(str(run.environment.get("commit") or "unknown")[:10] for run in runs)
        hours = sum(run.seconds for run in runs) / 3600

        def of(name: str) -> str:
            values = sorted({getattr(spec.recipe, name) for spec in specs})
            return " or ".join(_short(each) if name == "lr" else f"{each:g}" for each in values)

        split = " and ".join(dict.fromkeys(spec.dataset.evaluate_on for spec in specs))
        return [
            f"Data: {_some(spec.dataset.label for spec in specs)}; scored on {split} images.",
            f"Models: {_some((spec.model.describe() for spec in specs), '; ')}. Parameters: {between}.",
            f"Training: {of('epochs')} epochs, batch {of('batch_size')}, learning rate {of('lr')}, weight decay "
            f"{of('weight_decay')}.",
            f"Seeds: {self.seeds}. {count(len(runs), 'run')}, {hours:.1f} hours of training, on {_some(processors)}.",
            f"Commits: {', '.join(commits)}.",
        ]


def _mean_and_spread(scores: list[float], digits: int = 2) -> str:
    spread = f" ± {np.std(scores, ddof=1):.{digits}f}" if len(scores) > 1 else ""
    return f"{number(float(np.mean(scores)), digits)}{spread}"


def _p(p: float | None) -> str:
    assert p is not None
    return p_written(p)


def _short(value: Any) -> str:
    """A number as people write it in a recipe: `3e-4`, `0.05`."""
    if isinstance(value, float) and 0 < value < 0.02:
        digits, _, power = f"{value:.6e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pipe(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its head."""
    head, *rest = lines
    rule = ["---"] + ["--:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rest])


def _leaves(part: Any, path: Sequence[str]) -> Iterator[float]:
    """Yield the numbers at a path of a record; on a list, a name is that of each of its entries."""
    if part is None:
        return
    if isinstance(part, (list, tuple)) and not (path and path[0].isdigit()):
        for each in part:
            yield from _leaves(each, path)
    elif isinstance(part, (list, tuple)):
        yield from _leaves(part[int(path[0])], path[1:])
    elif path:
        yield from _leaves(part.get(path[0]) if isinstance(part, dict) else getattr(part, path[0]), path[1:])
    else:
        yield float(part)


def _some(texts: Iterable[str], between: str = ", ", most: int = 4) -> str:
    """Join the first few of these, and count the others."""
    every = [escape_markdown(text) for text in dict.fromkeys(texts)]
    return between.join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
