"""Numbers of a study, in the form in which the template of a page asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitinit.analysis import frame
from vitinit.analysis.choose import Choice, choose
from vitinit.analysis.pages.difference import Difference
from vitinit.analysis.tables.contrasts import label
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import p_written, to_markdown
from vitinit.analysis.tables.shared import TableCell, TableLayout, values_by_seed
from vitinit.analysis.text import count, escape_markdown, number, signed
from vitinit.benchmark.settings import flat
from vitinit.initializers.errors import VitinitError, unknown_name

if TYPE_CHECKING:
    import pandas as pd


NAMES = {"lr": "learning rate"}
"""Fields of a recipe in words."""


class NothingRecorded(VitinitError):
    """No record of a row holds a field."""


class Facts:
    """Facts of one study, from its records, for its page."""

    def __init__(self, study: frame.Study) -> None:
        study.require_runs()
        self.study = study
        self.name = study.name
        self.title = study.layout.title or study.name

    @cached_property
    def _values(self) -> dict[tuple[str, str], dict[int, pd.Series[float]]]:
        """Scores by row and column, by epoch, by seed; epoch 0 stands for the last one."""
        import pandas as pd

        found: dict[tuple[str, str], dict[int, pd.Series[float]]] = {}
        for (column, row), runs in self.study.cells.items():
            epochs = {epoch for run in runs for epoch in run.evaluated}
            found[row, column] = {
                epoch: pd.Series({run.spec.seed: run.evaluated.get(epoch) for run in runs}, dtype=float).dropna()
                for epoch in epochs
            } | {0: values_by_seed(self.study, "last")[row, column]}
        return found

    def by_seed(self, row: str, column: str | None = None, epoch: int = 0) -> pd.Series[float]:
        """Return the scores of a cell by seed, in percent, after an epoch (0: the last)."""
        if row not in self.study.rows:
            raise unknown_name(f"row of study {self.name}", row, self.study.rows)
        places = [place for place in self.study.columns if (row, place) in self._values]
        scores = self._values[row, self._place(f"row {row!r}", column, places)]
        if epoch not in scores:
            raise VitinitError(f"study {self.name}, row {row!r}: no run was evaluated after epoch {epoch}")
        return scores[epoch]

    def _place(self, what: str, column: str | None, places: Sequence[str]) -> str:
        """Return the column that is asked for, or the only one."""
        if column is None and len(places) != 1:
            raise VitinitError(f"study {self.name}, {what}: name one of its columns: {', '.join(places)}")
        if column is not None and column not in places:
            raise unknown_name(f"column of study {self.name}, {what},", column, places)
        return column or places[0]

    def score(self, row: str, column: str | None = None, epoch: int = 0, digits: int = 2) -> str:
        """Return mean and sample standard deviation over seeds: `65.55 ± 0.70`."""
        values = self.by_seed(row, column, epoch)
        spread = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
        return f"{number(values.mean(), digits)}{spread}"

    def mean(self, row: str, column: str | None = None, epoch: int = 0) -> float:
        """Return the mean over seeds, in percent."""
        return float(self.by_seed(row, column, epoch).mean())

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
        """Return a row minus another one, by seed.

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
        d = (first - second).dropna().sort_index()
        where = (f" on {column}" if column else "") + (f" after epoch {epoch}" if epoch else "")
        return Difference(f"{row} − {over}{where}", d if seeds is None else d[d.index.isin(list(seeds))], digits)

    def average(self, row: str, over: str, places: Iterable[str]) -> Difference:
        """Return the mean over columns of a row minus another one, by seed."""
        each = [self.gain(row, over, column).by_seed for column in places]
        return Difference(f"{row} − {over}, mean over columns", sum(each[1:], each[0]) / len(each))

    def contrast(self, first: str, second: str, column: str | None = None) -> TableCell:
        """Return the cell of a comparison that the grid named: p by Holm, pooled interval, detectable effect."""
        cells, name = self._contrast_cells, label((first, second))
        places = [place for place in self.study.columns if (cell := cells.get((name, place))) and cell.against]
        if not places:
            raise unknown_name(f"contrast of study {self.name}", name, {its for its, _ in cells})
        return cells[name, self._place(f"contrast {name!r}", column, places)]

    @cached_property
    def _contrast_cells(self) -> dict[tuple[str, str], TableCell]:
        """Cells of the table of contrasts, by contrast and column; empty where the grid named none."""
        name = f"{self.name}_contrasts"
        return dict(build(self.study, name).cells) if self.study.contrasts and name in names(self.study) else {}

    def p(self, first: str, second: str, column: str | None = None) -> str:
        """Return p of a comparison that the grid named: sign-flip test, Holm over all of them."""
        cell = self.contrast(first, second, column)
        assert cell.p is not None
        return f"p = {p_written(cell.p)}".replace("= <", "<")

    def planned(self, first: str, second: str, column: str | None = None) -> Difference:
        """Return a named comparison with the pooled interval, for grids that name it as the primary one."""
        return replace(self.gain(first, second, column), pooled=self.contrast(first, second, column).pooled)

    def detectable(self, column: str | None = None) -> str:
        """Return the smallest detectable effect of the comparisons that the grid named, in points."""
        place = self._place("contrasts", column, self.study.columns)
        sizes = [cell.detectable for (_, its), cell in self._contrast_cells.items() if its == place and cell.detectable]
        if not sizes:
            raise VitinitError(f"study {self.name}: no contrast on {place} has an effect that it could detect")
        return number(max(sizes))

    def field(self, path: str, row: str | None = None, column: str | None = None, epoch: int | None = None) -> float:
        """Return a number of the records, averaged over runs, and over layers and heads where it is a list.

        Args:
            path: As `init.real_images.mass` or `init.norms.0.query` (first layer); with `epoch`, of the probe after it:
                `nonlocality`.
            row: Label; None for all runs.
            column: None for all columns.
            epoch: Of the probes; 0 for the start, −1 for the last.
        """
        return float(self._numbers(path, row, column, epoch).mean())

    def ranked(self, without: str) -> list[str]:
        """Return the rows of a study with one column by falling mean, but those whose label ends with these words."""
        return sorted((row for row in self.study.rows if not row.endswith(without)), key=lambda row: -self.mean(row))

    def masked(self, term: str | None, digits: int = 2) -> dict[str, str]:
        """Return top-1 of trained ConViTs by row, with a term of the attention left out of all GPSA layers.

        Args:
            term: `content` or `position`; None for the whole model, on the same images.
            digits: Decimals.
        """
        found = {}
        for (_, row), runs in self.study.cells.items():
            each = [
                max(run.masked, key=lambda one: (one.term == (term or one.term), one.layers))
                for run in runs
                if run.masked
            ]
            if each:
                found[row] = _mean_and_spread([one.top1 if term else one.top1_whole for one in each], digits)
        return found

    def recipe(self, name: str) -> dict[str, str]:
        """Return a field of the recipe by row: `3e-3`."""
        cells = self.study.cells.items()
        values = {
            row: dict.fromkeys(_short(getattr(run.spec.recipe, name)) for run in runs) for (_, row), runs in cells
        }
        return {row: " or ".join(its) for row, its in values.items()}

    def texts(self, path: str, times: float = 1, digits: int = 1, column: str | None = None) -> dict[str, str]:
        """Return a number of the records by row, as `field` gives it, for rows that have it.

        Args:
            path: As of `field`.
            times: Factor: 100 for a share in percent.
            digits: Decimals.
            column: None for all columns.
        """
        found = {}
        for row in self.study.rows:
            try:
                found[row] = number(times * self.field(path, row, column), digits)
            except NothingRecorded:
                continue
        return found

    def _numbers(self, path: str, row: str | None, column: str | None, epoch: int | None) -> pd.Series[float]:
        import numpy as np
        import pandas as pd

        numbers: list[float] = []
        for (place, its), runs in self.study.cells.items():
            if row in (None, its) and column in (None, place):
                for run in runs:
                    part: Any = run
                    if epoch is not None:
                        probes = {probe.epoch: probe for probe in run.probes}
                        part = probes.get(max(probes, default=0) if epoch == -1 else epoch)
                    for name in path.split("."):
                        part = _get(part, name)
                    if part is not None:
                        numbers.append(float(np.mean([x for x in _leaves(part) if x is not None])))
        if not numbers:
            raise NothingRecorded(f"study {self.name}: no record of row {row!r} holds {path}")
        return pd.Series(numbers, dtype=float)

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

    def table(
        self,
        ending: str = "",
        rows: list[str] | None = None,
        gain: bool = False,
        baseline: str | None = None,
    ) -> str:
        """Return a table of the study as Markdown, its caption below it.

        Args:
            ending: Name behind that of the study: `_contrasts`, `_epochs`; empty for the study's own.
            rows: These only, in this order.
            gain: Differences, too.
            baseline: Row that these are to; None: each row's own base.
        """
        table = build(self.study, self.name + ending, baseline=baseline, rows=rows)
        return _below(to_markdown(table, TableLayout(gain=gain)))

    def comparisons(self, epochs: Iterable[int] = (), pooled: bool = False) -> str:
        """Return the comparisons that the grid named as a Markdown table: difference, interval and p.

        Args:
            epochs: Columns for differences after these epochs, in front of that after the last.
            pooled: True where the grid names the pooled interval and test as primary, in the place of Student's
                interval and the sign-flip test.
        """
        several = len(self.study.columns) > 1
        ends = ["last epoch, pooled", "pooled p"] if pooled else ["last epoch", "p"]
        heads = ["comparison", *(f"epoch {epoch}" for epoch in epochs), *ends]
        lines = [heads, ["---"] + ["--:"] * (len(heads) - 1)]
        for first, second, column in self.contrasts:
            name = f"{first} − {second}" + (f", {column}" if several else "")
            earlier = [self.gain(first, second, column, epoch).short for epoch in epochs]
            cell = self.contrast(first, second, column)
            last = self.planned(first, second, column) if pooled else self.gain(first, second, column)
            p = cell.pooled_p if pooled else cell.p
            assert p is not None
            lines.append([escape_markdown(name), *earlier, last.short, p_written(p)])
        return _pipe(lines)

    def gains_table(
        self,
        rows: Iterable[str],
        over: dict[str, str],
        column: str | None = None,
        digits: int = 2,
        bases: dict[str, str] | None = None,
        **more: dict[str, str],
    ) -> str:
        """Return a Markdown table of scores and of differences to other rows.

        Args:
            rows: Lines, in order.
            over: Head of a column of differences: the row that they are to; in it `{row}` stands for the line's own,
                `{base}` for that of its base. A row that is not there, or the line's own, leaves the cell empty.
            column: Of the study; None where it has one only.
            digits: Decimals.
            bases: Row that stands for the base of a row, where it is another model.
            more: Head of a further column: its texts by row.
        """
        from vitinit.analysis.tables.shared import own_bases

        bases = own_bases(self.study) | (bases or {})
        lines = [["", self.study.metrics[column or self.study.columns[0]], *over, *map(escape_markdown, more)]]
        lines.append(["---"] + ["--:"] * (len(lines[0]) - 1))
        for row in rows:
            line = [escape_markdown(row), self.score(row, column, digits=digits)]
            for other in over.values():
                other = other.format(row=row, base=bases.get(row, row))
                there = other != row and (other, column or self.study.columns[0]) in self._values
                line.append(self.gain(row, other, column, digits=digits).short if there else "")
            lines.append([*line, *(texts.get(row, "") for texts in more.values())])
        return _pipe(lines)

    def choices(self) -> str:
        """Return the choice of a tuning study as a Markdown table: scores at each value, the best bold, its lead."""
        _, choices = self._chosen
        values = sorted({each.value for choice in choices for each in (choice.best, *choice.others)})
        lines = [["", *(self._value(value) for value in values), "lead of the best"]]
        lines.append(["---"] + ["--:"] * (len(values) + 1))
        for choice in choices:
            scores = {each.value: each.scores for each in (choice.best, *choice.others)}
            texts = {value: _mean_and_spread(list(its.values())) for value, its in scores.items()}
            texts[choice.best.value] = f"**{texts[choice.best.value]}**"
            lead = sum(choice.lead) / len(choice.lead) if choice.lead else None
            line = [escape_markdown(choice.row), *(texts.get(value, "diverged") for value in values)]
            lines.append([*line, "" if lead is None else signed(lead)])
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
        runs, (_, choices) = next(iter(self.study.contents.done.values())), self._chosen
        p = sum(choice.best.mean for choice in choices) / len(choices) / 100
        return float(100 * (p * (1 - p) / (runs.dataset.val or 1)) ** 0.5)

    def over_epochs(self, rows: list[str], epochs: list[int], column: str | None = None) -> str:
        """Return a Markdown table of scores after some epochs."""
        lines = [[""] + [f"epoch {epoch}" for epoch in epochs], ["---"] + ["--:"] * len(epochs)]
        lines += [[escape_markdown(row), *(self.score(row, column, epoch) for epoch in epochs)] for row in rows]
        return _pipe(lines)

    def figure(self, name: str, alt: str) -> str:
        """Return a picture of the study's folder as Markdown.

        Raises:
            VitinitError: there is no such file.
        """
        path = Path("figures") / name
        if not any((folder / self.name / path).is_file() for folder in self.study.folders):
            raise VitinitError(f"study {self.name}: no picture {path} beside its records")
        return f"![{alt}]({path.as_posix()})"

    @property
    def figures(self) -> list[str]:
        """Names of the pictures in the study's folder."""
        here = [folder / self.name / "figures" for folder in self.study.folders]
        return sorted({path.name for folder in here if folder.is_dir() for path in folder.glob("*.png")})

    @property
    def contrasts(self) -> list[tuple[str, str, str]]:
        """Comparisons that the grid named and that have runs: first row, second row, column."""
        cells = self._contrast_cells
        return [
            (first, second, column)
            for first, second in self.study.contrasts
            for column in self.study.columns
            if (cell := cells.get((label((first, second)), column))) and cell.against and cell.against.interval
        ]

    @property
    def setting(self) -> list[str]:
        """Return the protocol of the study, one line each: data, model, training, seeds, where."""
        runs = list(self.study.contents.done.values())
        specs = [run.spec for run in runs]
        varying = _varying([spec.recipe.model_dump_json() for spec in specs])
        recipe = specs[0].recipe
        datasets = dict.fromkeys(run.spec.dataset.label for run in runs)
        models = dict.fromkeys(spec.model.describe() for spec in specs)
        parameters = sorted({run.parameters for run in runs})
        between = f"{parameters[0]:,}" + (f" to {parameters[-1]:,}" if len(parameters) > 1 else "")
        processors = dict.fromkeys(
            str(run.environment.get("gpu") or run.environment.get("processor") or "unknown") for run in runs
        )
        commits = dict.fromkeys(str(run.environment.get("commit") or "unknown")[:10] for run in runs)
        hours = sum(run.seconds for run in runs) / 3600

        def of(name: str, value: object) -> str:
            texts = varying.get(name, [str(value)])
            return " or ".join(_short(float(each)) if name == "lr" else each for each in texts)

        split = " and ".join(dict.fromkeys(spec.dataset.evaluate_on for spec in specs))
        return [
            f"Data: {_some(datasets)}; scored on {split} images.",
            f"Models: {_some(models, between='; ')}. Parameters: {between}.",
            f"Training: {of('epochs', recipe.epochs)} epochs, batch {of('batch_size', recipe.batch_size)}, "
            f"learning rate {of('lr', recipe.lr)}, weight decay {of('weight_decay', f'{recipe.weight_decay:g}')}.",
            f"Seeds: {self.seeds}. {count(len(runs), 'run')}, {hours:.1f} hours of training, on {_some(processors)}.",
            f"Commits: {', '.join(commits)}.",
        ]


def _mean_and_spread(scores: list[float], digits: int = 2) -> str:
    import numpy as np

    spread = f" ± {np.std(scores, ddof=1):.{digits}f}" if len(scores) > 1 else ""
    return f"{number(float(np.mean(scores)), digits)}{spread}"


def _short(value: Any) -> str:
    """A number as people write it in a recipe: `3e-4`, `0.05`."""
    if isinstance(value, float) and 0 < value < 0.02:
        digits, _, power = f"{value:.6e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pipe(lines: Iterable[Iterable[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _below(markdown: str) -> str:
    """Markdown of a table with its caption, in small type, below it."""
    caption, _, table = markdown.partition("\n\n")
    return f"{table.strip()}\n\n<sub>{caption.strip()}</sub>"


def _get(part: Any, name: str) -> Any:
    if part is None:
        return None
    if isinstance(part, (list, tuple)) and name.isdigit():
        return part[int(name)] if int(name) < len(part) else None
    if isinstance(part, (list, tuple)):
        return [_get(each, name) for each in part]
    return part.get(name) if isinstance(part, dict) else getattr(part, name)


def _leaves(part: Any) -> Iterable[Any]:
    if isinstance(part, (list, tuple)):
        for each in part:
            yield from _leaves(each)
    else:
        yield part


def _varying(settings: list[str]) -> dict[str, list[str]]:
    """Values of the fields that differ between settings, in JSON, in ascending order."""
    every = [flat(setting) for setting in dict.fromkeys(settings)]
    names = {name for each in every for name in each}
    found = {name: sorted({each[name] for each in every if name in each}, key=_numerically) for name in sorted(names)}
    return {name: values for name, values in found.items() if len(values) > 1}


def _numerically(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text


def _some(texts: Iterable[str], most: int = 4, between: str = ", ") -> str:
    """Join the first few of these, and count the others."""
    every = [escape_markdown(text) for text in texts]
    return between.join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
