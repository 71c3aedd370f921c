"""What stands under a table: every setting, source and count, computed from the records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vitinit.analysis.frame import Study
from vitinit.analysis.tables.context import beside
from vitinit.analysis.tables.shared import (
    LEVEL,
    PLAIN,
    Table,
    TableLayout,
    contrasts_compared,
    differing,
    skipped,
    usual_seeds,
)
from vitinit.analysis.text import count, one_line

if TYPE_CHECKING:
    import pandas as pd

SPLITS = {"test": "test {}", "val": "{} on validation images, taken from the training split,"}
METRICS = {
    "last": "{} (%) after the last epoch",
    "best": "best {} (%) of all evaluated epochs (it selects on what it measures)",
    "each": "{} (%) after the epoch of the column",
}


def quantity(study: Study, metric: str) -> str:
    """What the numbers of a study are, in one phrase."""
    splits, (first, *rest) = set(study.runs["split"]), study.measured.split(" or ")
    for other in rest:
        columns = [column for column, its in study.metrics.items() if its == other]
        first += f" (on {', '.join(columns)}: {other})"
    both = "test {} (in columns named validation, on images taken from the training split)"
    return METRICS[metric].format((SPLITS[splits.pop()] if len(splits) == 1 else both).format(first))


def caption(table: Table, look: TableLayout = PLAIN) -> str:
    """Return the caption of a table, the same in every format: title, quantity, n, rule of bold, sources."""
    cells = table.cells.values()
    n = usual_seeds(table) or 0
    spread = ", mean ± standard deviation" if any(cell.ours and cell.ours.std is not None for cell in cells) else ""
    other = any(cell.ours and cell.ours.n != n for cell in cells)
    lines = [look.title or table.caption]
    lines.append(f"{table.shows}{spread}, n = {count(n, 'seed')}{' unless given' if other else ''}".lstrip(", "))
    if any(cell.best for cell in cells):
        lines.append("Bold: best, or its paired difference from the best has a 95 % interval that contains 0")
    if gains(table, look):
        bases = set(table.baselines.values())
        over = table.gain or f"over {table.baseline or (bases.pop() if len(bases) == 1 else 'the own base')}"
        lines.append(f"Gain: by seed, {over}, with its 95 % interval")
        if any(cell.p is not None for cell in cells):
            lines.append(f"p: sign-flip test, Holm over {count(table.comparisons, 'comparison')}")
        if any(cell.pooled for cell in cells):
            lines.append("Pooled: t interval and test with the noise of all rows, Holm likewise")
    if papers := dict.fromkeys(cell.published.source.partition(" (")[0] for cell in cells if cell.published):
        lines.append(f"Paper: {'; '.join(papers)}")
    if any(cell.excludes_published for cell in cells):
        lines.append("†: the paper's number is outside the 95 % interval of our mean")
    return " ".join(f"{line.rstrip('.')}." for line in lines)


def gains(table: Table, look: TableLayout) -> bool:
    """Return True where columns of differences are shown."""
    compared = any(cell.against for cell in table.cells.values())
    return compared and bool(table.gain or look.gain or look.whole)


def notes(table: Table, metric: str) -> list[str]:
    """The sentences below the table, in order.

    Args:
        table: All but its notes.
        metric: `last` or `best`.
    """
    study = table.study
    runs = study.runs[study.runs["row"].isin(table.rows)]
    lines = [f"Ours: {quantity(study, metric)}, mean ± sample standard deviation over seeds (none for n=1)."]
    lines += _comparisons(table)
    lines += _together(table)
    lines += _unequal(table, runs)
    lines += settings(runs)
    lines += _provenance(runs)
    lines += mixed_code(table)
    lines += beside(table)
    lines += _counts(study)
    return lines


def compared_with(baselines: dict[str, str]) -> str:
    """The row that most others are compared with, and by their names those that are compared with another one."""
    rows: dict[str, list[str]] = defaultdict(list)
    for row, other in baselines.items():
        rows[other].append(row)
    most = max(rows, key=lambda other: len(rows[other]))
    return "; ".join([most, *(f"of {', '.join(its)}: {other}" for other, its in rows.items() if other != most)])


def _comparisons(table: Table) -> list[str]:
    lines = []
    tests = {key: cell.against for key, cell in table.cells.items() if cell.against}
    if tests:
        compared = {row: table.baselines[row] for row, _ in tests}
        own = f"the own base (same base and model, no method: {compared_with(compared)})"
        lines.append(
            f"Difference: by seed, to {table.baseline or own}, with its 95 % interval "
            "(Student's t; none under 3 common seeds)."
        )
        if table.study.contrasts:
            where = f"table {table.study.name}_contrasts tests them"
            has = where if contrasts_compared(table.study) else "none has two finished runs of a seed yet"
            lines[-1] += f" No p: the grid names its comparisons, and {has}."
        elif any(pair.p is not None for pair in tests.values()):
            missing = table.comparisons - len(tests)
            lines[-1] += (
                f" p: exact two-sided sign-flip test, corrected by Holm over {count(table.comparisons, 'comparison')}"
                f"{f', {missing} without runs yet' if missing > 0 else ''}{_without_p(table)}."
            )
        lines += not_initialisation_alone(table.study, compared_rows(table))
    elif table.baseline:
        lines.append(f"No differences: the baseline row {table.baseline} has no finished run.")
    if alone := [row for row in _methods(table) if row not in table.baselines]:
        lines.append(
            "No difference (--baseline ROW gives one), as no row has their base and model without a method: "
            f"{', '.join(alone)}."
        )
    if any(cell.best for cell in table.cells.values()):
        lines.append(
            "Bold: the highest mean of the column, and every row whose difference from it by seed has an interval that "
            "contains 0 (rows of 3 seeds or more)."
        )
    if any(cell.excludes_published for cell in table.cells.values()):
        lines.append("†: the 95 % interval of our mean does not contain the paper's number.")
    return lines


def compared_rows(table: Table) -> list[tuple[str, str]]:
    """Each row that has a difference, with the row that it is to."""
    return [
        (row, table.baselines[row])
        for row in dict.fromkeys(row for (row, _), cell in table.cells.items() if cell.against)
    ]


def not_initialisation_alone(study: Study, compared: Iterable[tuple[str, str]], values: bool = True) -> list[str]:
    """The rows that differ from the one they are compared with in their model or recipe, too."""
    found: dict[str, list[str]] = defaultdict(list)
    for row, other in compared:
        if fields := differing(study, row, other):
            texts = [f"{name} {ours} (not {theirs})" if values else name for name, (ours, theirs) in fields.items()]
            found[", ".join(texts)].append(row)
    rows = "; ".join(f"{', '.join(its)} in {text}" for text, its in found.items())
    return [f"More than the initialisation differs from the row compared with: {rows}."] if found else []


def _methods(table: Table) -> list[str]:
    """Rows with a method, in the order of the table; none where all are compared with one row."""
    with_method = {outcome.row for outcome in table.study.outcomes if outcome.spec.method}
    return [row for row in table.rows if row in with_method and not table.baseline]


def _without_p(table: Table) -> str:
    """How low p could be by number of pairs, where that is too high for it to be shown."""
    floors = {}
    for cell in table.cells.values():
        if cell.against and cell.least_p is not None and cell.least_p > LEVEL:
            n = cell.against.n
            floors[n] = f"n={n}: {cell.against.least_p:.2g} in one test alone, {cell.least_p:.2g} corrected"
    why = f"not shown where it could not be under {LEVEL}, whatever the numbers"
    return f"; {why} ({'; '.join(floors[n] for n in sorted(floors))})" if floors else ""


def _together(table: Table) -> list[str]:
    if not table.across:
        return []
    over = ", ".join(table.together)
    lines = [f"Last column, over {over}: mean of the means; IQM, the mean of the middle half of all runs"]
    if any(across.better for across in table.across.values()):
        lines[0] += "; P, the probability that one run is better than one of the row that differences are to"
    lines[0] += (
        ". Intervals: bootstrap, stratified by column; with few seeds they are too narrow "
        "(3 seeds: near 85 % in place of 95 %)."
    )
    datasets = {table.study.examples[None, column].dataset for column in table.together}
    if len(datasets) < len(table.together):
        lines.append("Columns of one dataset share its images and seeds: over them the intervals are narrower still.")
    if left := [row for row in table.rows if row not in table.across]:
        lines.append(f"Without 3 seeds in each of these columns: {', '.join(left)}.")
    return lines


def _unequal(table: Table, runs: pd.DataFrame) -> list[str]:
    """Cells without a run, and those with another number of seeds than most."""
    lines = []
    left_out = skipped(table.study)
    absent = [key for key, cell in table.cells.items() if cell.ours is None and key not in left_out]
    missing = [*(f"{row} on {column}" for row, column in absent), *without_record(table.study)]
    if missing:
        lines.append(f"No finished run: {', '.join(missing)}.")
    return [*lines, seeds(table), *over_fewer_seeds(table)]


def seeds(table: Table) -> str:
    """How many most cells have, and the cells that have another number."""
    n = {key: cell.ours.n for key, cell in table.cells.items() if cell.ours}
    usual = usual_seeds(table) or 0
    other = [f"{row} on {column} ({value})" for (row, column), value in n.items() if value != usual]
    return f"n = {count(usual, 'seed')}{'; other: ' * bool(other)}{', '.join(other)}."


def over_fewer_seeds(table: Table) -> list[str]:
    """The differences for which the other row has not all seeds."""
    short = [
        f"{row} on {column} ({cell.against.n})"
        for (row, column), cell in table.cells.items()
        if cell.ours and cell.against and cell.against.n < cell.ours.n
    ]
    return [f"Differences over fewer seeds than n: {', '.join(short)}."] if short else []


def without_record(study: Study) -> list[str]:
    """The rows of the grid that have no record at all."""
    return [row for row in study.order if row not in study.rows]


def settings(runs: pd.DataFrame) -> list[str]:
    """Model and epochs of each column; columns with the same are one sentence, rows that differ are named."""
    sentences: dict[str, list[str]] = defaultdict(list)
    warnings = []
    for column, group in runs.groupby("column", sort=False):
        rows: dict[str, list[str]] = defaultdict(list)
        for _, run in group.drop_duplicates(["row", "model", "epochs", "lr"]).iterrows():
            rows[f"{run['model']}, {count(run['epochs'], 'epoch')}{_own_rate(group, run)}"].append(run["row"])
        (first, _), *rest = rows.items()
        images = " or ".join(f"{images:,}" for images in sorted(set(group["train_images"])))
        sentence = "; ".join([first, *(f"{', '.join(names)}: {text}" for text, names in rest)])
        sentences[sentence].append(f"{column} ({images} training images)")
        if (group.groupby("seed")["checksum"].nunique() > 1).any():
            warnings.append(f"Not comparable: the runs on {column} read different data (checksums differ).")
    return [f"{', '.join(columns)}: {sentence}." for sentence, columns in sentences.items()] + warnings


def _own_rate(group: pd.DataFrame, run: pd.Series[Any]) -> str:
    """The learning rate, where rows of a column have different ones."""
    return f", learning rate {run['lr']:g}" if group["lr"].nunique() > 1 else ""


def _provenance(runs: pd.DataFrame) -> list[str]:
    def values(name: str) -> list[str]:
        known = sorted({str(value) for value in runs[name].dropna()})
        return known + ["unknown"] * bool(runs[name].isna().any())

    mixed = [
        f"{noun} ({', '.join(values(name))})"
        for name, noun in (("precision", "precision"), ("device", "device"), ("hardware", "hardware"))
        if len(values(name)) > 1
    ]
    commits = sorted({str(commit)[:10] for commit in runs["commit"].dropna()})
    text = f"Precision {', '.join(values('precision'))}; device {', '.join(values('device'))}; "
    text += f"{'mixed commits' if len(commits) > 1 else 'commit'} {', '.join(commits) or 'unknown'}"
    if runs["commit"].isna().any() and commits:
        text += f" ({count(int(runs['commit'].isna().sum()), 'run')} without one)"
    dirty = int((runs["dirty"] == True).sum())  # noqa: E712 - None counts as not dirty
    text += f"; {dirty} of {count(len(runs), 'run')} from a tree with uncommitted changes." if dirty else "."
    return [text] + ([f"Mixed: {'; '.join(mixed)}."] if mixed else [])


def mixed_code(table: Table) -> list[str]:
    """The initialisers whose own file changed between runs of the table, as far as records tell, and their rows."""
    sources: dict[str, set[str]] = defaultdict(set)
    rows: dict[str, set[str]] = defaultdict(set)
    for run in table.study.contents.done.values():
        if run.row in table.rows:
            for name, source in run.sources.items():
                sources[name].add(source)
                rows[name].add(run.row)
    return [
        f"Mixed code of {name}: rows {', '.join(row for row in table.rows if row in rows[name])} hold runs of "
        f"{len(found)} versions of its file."
        for name, found in sorted(sources.items())
        if len(found) > 1
    ]


def _counts(study: Study) -> list[str]:
    contents = study.contents
    lines = [
        f"Runs: {len(contents.done)} finished, {len(contents.failed)} failed, {len(contents.skipped)} skipped; "
        f"{count(len(contents.problems), 'invalid file')} left out."
    ]
    if study.contradicted:
        several = count(study.contradicted, "run")
        lines.append(f"{several} with other numbers in a folder named later: those of the first are taken.")
    changed = [run for run in contents.done.values() if run.environment.get("changed_while_running")]
    if changed:
        lines.append(
            f"{count(len(changed), 'run')} went on after a stop with other code, libraries, processor or flags than "
            "before (changed_while_running in the record): another machine need not get the same bits."
        )
    for word, outcomes in (("Failed", contents.failed), ("Skipped", contents.skipped)):
        where: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for outcome in outcomes.values():
            why = outcome.reason if outcome.status == "skipped" else f"{outcome.error}: {outcome.message}"
            first_line = next(iter(why.strip().splitlines()), "")
            where[one_line(first_line, 160)][f"{outcome.row} on {study.column[outcome.run_id]}"].append(
                outcome.spec.seed
            )
        for reason, cells in sorted(where.items()):
            places = (
                f"{cell} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))})"
                for cell, seeds in sorted(cells.items())
            )
            lines.append(f"{word}: {'; '.join(places)}: {reason}")
    return lines + [f"Invalid file: {problem}" for problem in contents.problems]
